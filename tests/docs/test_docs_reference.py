"""The reference has every public name, with an example that uses it; `tests/test_package.py` runs the examples."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import gradreg
from docs.site.docstrings import converted
from docs.site.reference import found, names_in
from gradreg import errors, losses

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))


def packages() -> Iterator[str]:
    """gradreg and its packages with a list of public names."""
    source = ROOT / "src"
    for folder in sorted({path.parent for path in (source / "gradreg").rglob("__init__.py*")}):
        name = ".".join(folder.relative_to(source).parts)
        if getattr(import_module(name), "__all__", None):
            yield name


def public() -> dict[int, list[str]]:
    """The public names of each object."""
    named: dict[int, list[str]] = {}
    for package in packages():
        for name in import_module(package).__all__:
            value = getattr(import_module(package), name)
            if not inspect.ismodule(value) and name != "__version__":
                named.setdefault(id(value), []).append(f"{package}.{name}")
    for module in (losses, errors):
        for name, value in vars(module).items():
            own = getattr(value, "__module__", "") == module.__name__
            if own and not name.startswith("_") and (module is losses or isinstance(value, type)):
                named.setdefault(id(value), []).append(f"{module.__name__}.{name}")
    return named


def documented() -> dict[str, str]:
    """For each name on a page of the reference, the code up to the next one."""
    examples = {}
    for page in PAGES:
        for part in page.read_text("utf-8").split("\n::: ")[1:]:
            name, _, rest = part.partition("\n")
            assert name not in examples, f"{name} is documented twice"
            examples[name] = "\n".join(re.findall(r"^```python\n(.*?)^```", rest, flags=re.DOTALL | re.MULTILINE))
    return examples


def test_every_public_name_is_in_the_reference_with_an_example() -> None:
    shown = {id(found(name)): name for name in documented()}
    missing = [names[0] for key, names in public().items() if key not in shown]
    assert not missing, f"put '::: NAME' and an example on a page of docs/reference for {', '.join(missing)}"
    for name, example in documented().items():
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", example) or _used(name, example), f"{name} has no example"


def _used(name: str, example: str) -> bool:
    """`gradreg.bounds` is called bounds_of where a package of that name is in use too."""
    return name == "gradreg.bounds.bounds" and "bounds_of(" in example


def test_nothing_private_is_in_the_reference() -> None:
    everything = {name for names in public().values() for name in names}
    assert set(documented()) <= everything


def test_every_page_of_the_reference_is_listed() -> None:
    index = (ROOT / "docs" / "reference" / "index.md").read_text("utf-8")
    for page in PAGES:
        assert page.name == "index.md" or f"]({page.name})" in index


def test_names_are_found_where_lines_say_so() -> None:
    assert names_in("a\n::: gradreg.attack\n ::: gradreg.fit\n") == ["gradreg.attack"]
    assert found("gradreg.attack") is gradreg.attack


@pytest.mark.parametrize(
    ("plain", "marked"),
    [
        ("‖∇ℓ‖_* per image", "‖∇ℓ‖\\_\\* per image"),
        ("`a*b` and a*b*c", "``a*b`` and a\\*b\\*c"),
        ("the *attack* alone", "the *attack* alone"),
        ("a |x| b", "a \\|x\\| b"),
    ],
)
def test_docstrings_are_taken_as_they_are(plain: str, marked: str) -> None:
    assert converted([plain]) == [marked]


def test_lists_in_docstrings_begin_with_a_blank_line_and_code_may_be_broken_over_lines() -> None:
    assert converted(["These:", "- one", "- two"]) == ["These:", "", "- one", "- two"]
    assert converted(["see `one", "two`"]) == ["see ``one", "two``"]
    assert converted(["one of", "  a", "  b", "and c"]) == ["one of", "", "| a", "| b", "", "and c"]
    assert converted(["- one", "  more", "- two"]) == ["- one", "  more", "- two"]
