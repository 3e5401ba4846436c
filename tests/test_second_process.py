"""The second pytest of tests/accelerator: its failures and crashes are shown, and its device stays in it."""

import subprocess
import sys
from pathlib import Path
from shutil import copy

import pytest
import torch

_HERE = Path(__file__).parent / "accelerator"
_TESTS = """
import os
import torch

def test_passes(device):
    assert torch.ones(2, device=device).sum().item() == 2

def test_fails(device):
    assert torch.ones(2, device=device).sum().item() == 3

def test_ends_the_process():
    os._exit(3)

def test_is_run_by_another():
    print("said by a second process")
    assert torch.accelerator.current_accelerator().type == "pretended"
"""


def test_this_process_has_no_pretended_device() -> None:
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"
    with pytest.raises(RuntimeError):
        torch.device("pretended")


@pytest.mark.slow
def test_failures_and_crashes_are_reported_one_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "accelerator"
    folder.mkdir(parents=True)
    for name in ("__init__.py", "conftest.py", "pretended.py", "waits.py"):
        copy(_HERE / name, folder)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (folder / "test_of_it.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "tests/accelerator"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    for name, outcome in {
        "passes": "PASSED",
        "fails": "FAILED",
        "ends_the_process": "FAILED",
        "is_run_by_another": "PASSED",
    }.items():
        assert f"::test_{name} {outcome}" in done.stdout
    assert "assert 2.0 == 3" in done.stdout
    assert "The second pytest ended in this test" in done.stdout
