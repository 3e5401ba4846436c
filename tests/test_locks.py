"""One writer at a time, whoever else comes is told who it is, and a dead one does not block."""

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from gradreg import attack, certify, locks
from gradreg.errors import ConfigError
from gradreg.locks import Holder, lock, lock_output

HOLD = """
import sys, time
from pathlib import Path
from gradreg.locks import lock
with lock(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    time.sleep(600)
"""


def holding(folder: Path, file: str = "", code: str = HOLD) -> "subprocess.Popen[str]":
    """A process that holds a lock until it is killed."""
    command = [sys.executable, "-c", code, str(folder), file, "a word"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def ended(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize("file", ["", "pool.safetensors"])
def test_the_holder_is_named_and_once_dead_does_not_block(file: str, tmp_path: Path) -> None:
    process = holding(tmp_path, file)
    try:
        who = rf"process {process.pid} on {platform.node()} \(`-c {tmp_path} .* 'a word'`, since \d{{4}}-.* UTC\)"
        with pytest.raises(ConfigError, match=rf"is being written by {who}; wait for it to end"), lock(tmp_path, file):
            pass
        # Somebody who was refused has not changed that.
        with pytest.raises(ConfigError, match=who), lock(tmp_path, file):
            pass
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(ConfigError, match=who), lock(tmp_path, file):
            pass
    finally:
        ended(process)
    assert [path.name for path in tmp_path.iterdir()] == [f".{file}.lock" if file else ".lock"]
    with lock(tmp_path, file):
        pass
    assert list(tmp_path.iterdir()) == []


# Its child is a copy, as the workers of a loader are.
FORKED = """
import os, sys, time
from pathlib import Path
from gradreg.locks import lock
with lock(Path(sys.argv[1]), sys.argv[2]):
    if os.fork():
        time.sleep(600)
    print("held", flush=True)
    time.sleep(5)
    os._exit(0)
"""


def test_workers_that_outlive_a_killed_holder_hold_nothing(tmp_path: Path) -> None:
    process = holding(tmp_path, code=FORKED)
    with pytest.raises(ConfigError, match=f"process {process.pid} on"), lock(tmp_path):
        pass
    ended(process)
    with lock(tmp_path):
        pass


@pytest.mark.parametrize("note", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}', "\xff", "{" * 100_000])
def test_a_marker_that_says_nothing_neither_blocks_nor_breaks(
    note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".lock").write_bytes(note.encode("latin-1"))
    with lock(tmp_path):
        (tmp_path / ".lock").write_bytes(note.encode("latin-1"))
        monkeypatch.setattr(locks, "_SETTLE", 0.0)
        with pytest.raises(ConfigError, match="is being written by another process"), lock(tmp_path):
            pass


def test_a_holder_of_another_machine_is_believed_to_live(tmp_path: Path) -> None:
    with lock(tmp_path):
        here = json.loads((tmp_path / ".lock").read_text())
        assert (here["pid"], here["host"]) == (os.getpid(), platform.node())
        gone = here | {"pid": 2**22 + 1}
        assert Holder(**gone).is_gone()
        assert not Holder(**(gone | {"host": "elsewhere"})).is_gone()
        assert not Holder(**here).is_gone()
        (tmp_path / ".lock").write_text(json.dumps(here | {"host": "elsewhere"}))
        with pytest.raises(ConfigError, match=r"by process \d+ on elsewhere"), lock(tmp_path):
            pass


def test_a_full_disk_has_no_room_for_a_name_and_a_lock_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(locks, "_SETTLE", 0.0)
    with lock(tmp_path), pytest.raises(ConfigError, match="is being written by another process"), lock(tmp_path):
        pass


def test_the_command_is_told_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, told in {
        ("/usr/bin/gradreg", "train", "--run", "a b"): "gradreg train --run 'a b'",
        ("/x/gradreg/__main__.py", "evaluate"): "gradreg evaluate",
        ("",): "python",
        ("x", "y" * 200): "x " + "y" * 117 + "…",
    }.items():
        monkeypatch.setattr(sys, "argv", list(given))
        assert Holder.this().command == told


def test_an_output_that_is_a_device_is_not_locked() -> None:
    with lock_output(Path(os.devnull)), lock_output(Path(os.devnull)):
        assert not Path("/dev/.null.lock").exists()


def test_files_to_resume_have_one_writer_whose_name_is_told(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    x, y = torch.rand(2, 3, 2, 2), torch.tensor([0, 1])
    calls: dict[str, Callable[[], object]] = {
        "pool": lambda: attack(model, x, y, threat="l2", attacks="quick", resume=tmp_path / "pool"),
        "state": lambda: certify(model, x, sigma=0.5, n=100, state=tmp_path / "state"),
    }
    for name, call in calls.items():
        process = holding(tmp_path, name)
        try:
            with pytest.raises(ConfigError, match=rf"{name} is being written by process {process.pid} on"):
                call()
        finally:
            ended(process)
        call()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pool", "state"]
