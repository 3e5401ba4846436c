"""The packages as a user imports them: their public names, what an import loads, and which files are packaged."""

import subprocess
import sys
from pathlib import Path

import pytest

import gradreg
from gradreg import runs, training

ROOT = Path(__file__).parents[2]


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_runs_load_no_trainer_and_no_attack() -> None:
    """One process for all of them: what none of them loads, each of them does not."""
    loaded = modules_after(
        "import gradreg.runs, gradreg.runs.subject\n"
        "from gradreg.runs import load, recipes, networks\n"
        "from gradreg.runs import *"
    )
    assert {"gradreg.runs", "gradreg.runs.subject"} <= loaded
    assert not {name for name in loaded if name.startswith(("gradreg.training", "gradreg.attacks"))}


def test_every_public_name_is_there() -> None:
    assert {"load", "recipes", "networks", "open_model", "Config", "Settings", "Probe", "Subject"} <= set(dir(runs))
    assert {"Fitted", "fit", "train", "Logger", "JSONLLogger"} <= set(dir(training))
    for package in (runs, training):
        for name in dir(package):
            assert getattr(package, name) is not None
    assert gradreg.load is runs.load
    assert gradreg.fit is training.fit


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_no_file_of_the_package_is_ignored_by_git() -> None:
    """Neither git nor a wheel would hold it."""
    paths = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    paths = [path for path in paths if not any(part.endswith(".egg-info") for part in path.parts)]
    command = ["git", "-C", str(ROOT), "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(command, input="\n".join(map(str, paths)), capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert paths
