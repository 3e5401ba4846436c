"""The package as a user meets it: what an import costs, what the command says, and that the documents are true."""

import pickle
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import gradreg
from gradreg.cli import main

ROOT = Path(__file__).parents[1]
HEAVY = ("matplotlib", "jinja2", "sklearn", "scipy.stats", "torchvision", "timm", "PIL", "pandas")


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_is_light_and_so_is_every_public_name() -> None:
    assert "torch" not in modules_after("import gradreg")
    loaded = modules_after(f"import gradreg\nfor name in {dir(gradreg)!r}: getattr(gradreg, name)")
    assert "torch" in loaded
    assert not loaded & set(HEAVY)


def test_rooms_can_be_entered_without_importing_them_first() -> None:
    assert "gradreg.data.mnist5k" in modules_after("import gradreg\ngradreg.data.names()")


def test_reading_a_record_loads_no_trainer_and_no_attack() -> None:
    """One process for all of them: what none of them loads, each of them does not."""
    names = ("report", "evaluation.record", "evaluation.files", "diagnosis.flags")
    loaded = modules_after("\n".join(f"import gradreg.{name}" for name in names) + "\ngradreg.report")
    assert {f"gradreg.{name}" for name in names} <= loaded
    assert not {name for name in loaded if name.startswith(("gradreg.training", "gradreg.attacks"))}


def test_public_names_are_all_there_and_no_others() -> None:
    listed = set(getattr(gradreg, "__all__"))  # noqa: B009, a stub has none
    assert listed == set(dir(gradreg))
    functions = {"regularized_loss", "attack", "estimate_regularity", "bounds", "violations", "certify", "diagnose"}
    assert functions | {"evaluate", "report", "build", "load", "fit", "attacks", "data", "norms"} <= listed
    with pytest.raises(AttributeError, match="No gradreg attribute robust"):
        getattr(gradreg, "robust")  # noqa: B009, type checkers know that it is not there


def test_the_package_is_pickled_by_its_name() -> None:
    """cloudpickle, as of Ray and Dask, sends a function with the modules that it uses; plain ones it knows itself."""
    assert pickle.loads(pickle.dumps(gradreg)) is gradreg


def test_help_answers_at_once_without_torch() -> None:
    code = "from gradreg.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert "torch" not in modules_after(code)
    seconds = []
    for _ in range(3):
        # Processor time, not the clock's: the claim is about the command, not about what else the machine does.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "gradreg", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5


def test_a_users_mistake_is_one_sentence_and_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["data", "mnist"])
    assert stop.value.code == 2
    assert re.fullmatch(r"gradreg: .*'mnist'.*\n", capsys.readouterr().err)


def test_listings(capsys: pytest.CaptureFixture[str]) -> None:
    main(["models"])
    assert "resnext34_2x32" in capsys.readouterr().out
    main(["data", "mnist5k"])
    assert "4000 training and 1000 test images" in capsys.readouterr().out


def test_version_is_the_packages() -> None:
    assert f'version = "{gradreg.__version__}"' in (ROOT / "pyproject.toml").read_text()


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_in_the_documents_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The python blocks of a page, one after the other in one namespace."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), namespace)
