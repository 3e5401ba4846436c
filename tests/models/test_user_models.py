"""`package.module:function`: found in the current directory, and every way it can go wrong."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from gradreg.errors import ModelError
from gradreg.models import build

SOURCE = """
from torch import nn

LIMIT = 3

def network(classes, depth=1):
    return nn.Sequential(nn.Flatten(), *(nn.LazyLinear(classes) for _ in range(depth)))

def deep(classes, depth):
    return network(classes, depth)

def flexible(**options):
    import users_helper
    return users_helper.linear(**options)

def fixed():
    return nn.Flatten()

def wrong(classes):
    return [classes]
"""


@pytest.fixture(autouse=True)
def users_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with the user's files, none of whose modules outlives the test."""
    package = tmp_path / "users_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(SOURCE)
    (package / "hungry.py").write_text("import no_such_library\n")
    (package / "broken.py").write_text("1 / 0\n")
    (tmp_path / "users_helper.py").write_text(
        "from torch import nn\n\ndef linear(classes, bias):\n    return nn.Linear(4, classes, bias=bias)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    return tmp_path


def message_of(name: str, **options: object) -> str:
    with pytest.raises(ModelError) as caught:
        build(name, classes=6, **options)
    return str(caught.value)


def test_function_in_the_current_directory_is_called_with_classes_and_options() -> None:
    model = build("users_package.nets:network", classes=6, depth=3)
    assert model(torch.rand(2, 1, 3, 3)).shape == (2, 6)
    assert sum(isinstance(m, nn.Linear) for m in model.modules()) == 3


def test_function_may_import_its_neighbours_when_called() -> None:
    model = build("users_package.nets:flexible", classes=6, bias=False)
    assert isinstance(model, nn.Linear)
    assert model.bias is None


@pytest.mark.parametrize("function", ["network", "wrong"])
def test_the_import_path_is_as_before(function: str) -> None:
    before = list(sys.path)
    if function == "wrong":
        message_of("users_package.nets:wrong")
    else:
        build("users_package.nets:network", classes=6)
    assert sys.path == before


def test_installed_functions_are_found_too() -> None:
    assert build("gradreg.models.small:small", classes=6)(torch.rand(1, 1, 28, 28)).shape == (1, 6)


@pytest.mark.parametrize("missing", ["no_such_package", "no_such_package.nets", "users_package.no_such_module"])
def test_module_not_found(missing: str, users_directory: Path) -> None:
    expected = f"Module '{missing}' was found neither in {users_directory} nor among the installed packages."
    assert message_of(f"{missing}:network") == expected


def test_module_that_needs_another() -> None:
    expected = "Module 'users_package.hungry' needs 'no_such_library', which is not installed."
    assert message_of("users_package.hungry:network") == expected


def test_a_bug_in_the_users_file_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        build("users_package.broken:network", classes=6)


def test_function_not_there() -> None:
    expected = "Module 'users_package.nets' has no 'netwerk' (did you mean 'network'?)."
    assert message_of("users_package.nets:netwerk") == expected


def test_not_callable() -> None:
    expected = "'users_package.nets:LIMIT' must be a function that returns a model; got int."
    assert message_of("users_package.nets:LIMIT") == expected


def test_result_that_is_no_module() -> None:
    expected = "Model 'users_package.nets:wrong' must return a torch.nn.Module; got list."
    assert message_of("users_package.nets:wrong") == expected


def test_options_are_checked_against_the_signature() -> None:
    assert message_of("users_package.nets:network", dept=2) == (
        "Model 'users_package.nets:network' takes no option 'dept' (did you mean 'depth'?); it takes: classes, depth."
    )
    assert message_of("users_package.nets:fixed") == (
        "Model 'users_package.nets:fixed' takes no option 'classes'; it takes: nothing."
    )
    assert message_of("users_package.nets:deep") == (
        "Model 'users_package.nets:deep' needs the option 'depth': pass depth=…."
    )


@pytest.mark.parametrize(
    "name", [":network", "users_package.nets:", "users package:f", ".nets:network", "a.b:c:d", "C:\\x"]
)
def test_malformed_reference(name: str) -> None:
    assert message_of(name) == f"A model of your own must have the form 'package.module:function'; got {name!r}."


def test_statistics_go_to_a_function_that_takes_them_and_around_the_model_of_any_other() -> None:
    torch.manual_seed(0)
    plain = build("users_package.nets:network", classes=6)
    torch.manual_seed(0)
    wrapped = build("users_package.nets:network", classes=6, mean=[0.5], std=[0.25])
    x = torch.rand(2, 1, 2, 2)
    plain((x - 0.5) / 0.25)
    torch.manual_seed(0)
    expected = plain((x - 0.5) / 0.25)
    wrapped(x)
    wrapped.get_submodule("model").load_state_dict(plain.state_dict())
    assert torch.allclose(wrapped(x), expected)
    assert "got mean alone" in message_of("users_package.nets:network", mean=0.5)
