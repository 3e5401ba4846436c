"""Two processes never write one run directory at the same time."""

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import in_a_process, tiny_fit

from gradreg.errors import ConfigError, RunError, StorageError
from gradreg.runs.directory import RunDirectory
from gradreg.training.step import Learner

REFUSED = r"is being written by process \d+ on .* \(`.*`, since .* UTC\); wait for it to end, or choose"


def train_forever(folder: str) -> None:
    """The first step of this run does not end."""
    torch.set_num_threads(1)

    def step(*arguments: Any, **options: Any) -> None:
        time.sleep(3600)

    Learner.step = step  # type: ignore[assignment, method-assign]
    tiny_fit(Path(folder))


def test_a_run_that_another_process_trains_is_refused_until_that_process_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = in_a_process(train_forever, str(run))
    while not (run / "config.toml").exists():
        assert process.is_alive()
        time.sleep(0.01)
    with pytest.raises(ConfigError, match=REFUSED):
        tiny_fit(run, resume=True)
    with pytest.raises(RunError, match="is not empty"):
        tiny_fit(run)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert len(tiny_fit(run, resume=True).metrics) == 3


def test_of_two_that_start_in_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.lock():
        with pytest.raises(ConfigError, match=REFUSED):
            tiny_fit(run.folder, epochs=1)
        assert not (run.folder / "config.toml").exists()
    assert len(tiny_fit(run.folder, epochs=1).metrics) == 1, "the lock file that is left does not make it non-empty"


def test_a_failed_run_does_not_stay_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "step", fail)
        with pytest.raises(ZeroDivisionError):
            tiny_fit(tmp_path / "run", epochs=1)
    assert len(tiny_fit(tmp_path / "run", epochs=1, resume=True).metrics) == 1


def test_no_lock_file_is_put_into_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(RunError):
            tiny_fit(tmp_path, resume=resume)
    with pytest.raises(RunError, match="is not empty"):
        tiny_fit(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_made_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"run could not be written \(Not a directory\): choose another place\.$"):
        tiny_fit(tmp_path / "file" / "run")


def test_a_full_disk_at_the_start_is_an_error_of_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match=r"config.toml could not be written \(No space left on device\): free some"):
        tiny_fit(tmp_path / "run")
    monkeypatch.undo()
    assert len(tiny_fit(tmp_path / "run", epochs=1).metrics) == 1
