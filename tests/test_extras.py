"""Packages that only parts of gradreg need: everything else works without them, and those parts name the extra."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

import gradreg
from gradreg.bounds import clever
from gradreg.cli import main
from gradreg.errors import MissingPackageError
from gradreg.extras import EXTRAS, need
from gradreg.smoothing import clopper_pearson

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {"torch", "filelock", "numpy", "safetensors", "rich", "tyro", "lazy-loader"}
BLOCKED = (*EXTRAS, "pandas", "sklearn")
_DISTRIBUTIONS = {"PIL": "pillow"}

BARE = """
import sys
from pathlib import Path
for name in {blocked!r}:
    sys.modules[name] = None
import torch, gradreg
from gradreg.cli import main
try:
    main(["train", "mnist5k-linf", "--run", "run", "--set", "epochs=1", "--set", "held_out=3500"])
except SystemExit as end:
    assert end.code == 0
model, digits = gradreg.load("run"), gradreg.data.load("mnist5k").test
x, y = digits.floats(slice(0, 8)), digits.labels[:8]
found = gradreg.attack(model, x, y, threat="linf", attacks="quick")
assert found.distance.isfinite().all()
known = gradreg.estimate_regularity(model, (x, y), threat="linf", method="local")
assert (gradreg.bounds(model, x, y, known).omega <= found.distance + 1).all()
gradreg.diagnose(model, x, y, threat="linf", eps=0.1)
main(["models"]); main(["recipes"]); main(["networks"]); main(["data", "mnist5k"])
print("done")
"""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", each)[0] for each in requirements}


def test_the_core_is_torch_and_small_packages() -> None:
    assert names(PROJECT["dependencies"]) == CORE


def test_every_extra_installs_what_the_errors_say_and_all_has_the_light_ones() -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    for package, extra in EXTRAS.items():
        assert _DISTRIBUTIONS.get(package, package) in names(extras[extra.name])
    assert extras["all"] == ["gradreg[folder,plots,report,stats]"]
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert not [extra for extra in extras if extra not in ("dev", "docs") and f"`{extra}`" not in page]
    assert {extra.name for extra in EXTRAS.values()} == set(extras) - {"all", "dev", "docs"}


def test_with_the_core_alone_it_trains_attacks_bounds_and_diagnoses(tmp_path: Path) -> None:
    code = BARE.format(blocked=BLOCKED)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in EXTRAS:
        monkeypatch.setitem(sys.modules, package, None)


def blank() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)).eval()


@pytest.mark.usefixtures("bare")
def test_what_needs_a_package_names_its_extra_before_any_work() -> None:
    asked = 0
    model = blank()

    def counted(x: torch.Tensor) -> torch.Tensor:
        nonlocal asked
        asked += 1
        logits: torch.Tensor = model(x)
        return logits

    x, y = torch.rand(4, 1, 4, 4), torch.zeros(4, dtype=torch.int64)
    calls: dict[str, list[Callable[[], object]]] = {
        "stats": [
            lambda: gradreg.evaluate(counted, (x, y)),
            lambda: gradreg.estimate_regularity(counted, (x, y)),
            lambda: clever(counted, x, y),
            lambda: gradreg.inspect_image(counted, x[0]),
            lambda: clopper_pearson(3, 10),
        ],
        "report": [lambda: gradreg.report(["nowhere"], "page.html")],
        "plots": [lambda: gradreg.report(["nowhere"], "table.md", figures="figures")],
    }
    for extra, needing in calls.items():
        for call in needing:
            with pytest.raises(MissingPackageError, match=rf"^[^.]+: run pip install 'gradreg\[{extra}\]'\.$"):
                call()
    assert asked == 0


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [(["inspect", "17", "--model", "cifar10-l2"], "matplotlib", "plots"), (["demo"], "jinja2", "report")],
)
def test_commands_name_the_extra_before_any_work(
    command: list[str],
    package: str,
    extra: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    assert re.fullmatch(rf"gradreg: .*pip install 'gradreg\[{extra}\]'\.\n", capsys.readouterr().err)


@pytest.mark.usefixtures("bare")
def test_a_certificate_names_its_extra_before_sampling() -> None:
    with pytest.raises(MissingPackageError, match=r"gradreg\[stats\]"):
        gradreg.certify(blank(), torch.rand(2, 1, 4, 4), sigma=0.25, n=100)


def test_a_package_that_is_there_but_broken_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> ModuleType:
        raise ImportError("libopenblas.so.0: cannot open shared object file")

    monkeypatch.setattr("gradreg.extras.import_module", broken)
    with pytest.raises(MissingPackageError, match=r"A table needs scipy.*\(libopenblas.*\): run pip install"):
        need("scipy", "A table")


def test_a_package_whose_own_library_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As scipy's on a machine without its Fortran libraries: Python says OSError then, and not ImportError."""

    def broken(name: str) -> ModuleType:
        raise OSError("libgfortran.so.5: cannot open shared object file")

    monkeypatch.setattr("gradreg.extras.import_module", broken)
    with pytest.raises(MissingPackageError, match=r"A report needs scipy, .* \(libgfortran.so.5: .*gradreg\[stats\]"):
        need("scipy", "A report")
