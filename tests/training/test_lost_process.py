"""Of two processes one dies: the other ends soon, with one sentence, and the run can be resumed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from gradreg import processes
from gradreg.errors import LostProcessError

SETTINGS = ("epochs=400", "held_out=3960", "probe.images=20", "batch_size=20")
TRAIN = ["train", "mnist5k-undefended", "--run", "run", *(word for each in SETTINGS for word in ("--set", each))]
GLOO = "[/x/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:8112. This is typically. GLHF!"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(GLOO), r"\(Connection closed by peer \[127.0.0.1\]:8112\)"),
        (dist.DistStoreError("timed out after 300000ms"), r"\(timed out after 300000ms\)"),
        (RuntimeError("NCCL error: remote process exited"), r"\(NCCL error: remote process exited\)"),
    ],
)
def test_what_libraries_say_is_told_as_a_lost_process(error: Exception, said: str) -> None:
    with pytest.raises(LostProcessError, match=rf"of 2 has lost another, .* {said}: start all again\."):
        raise_within(error)


def raise_within(error: Exception) -> None:
    with processes._one_sentence(2):
        raise error


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        raise_within(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def started(folder: Path) -> "list[subprocess.Popen[bytes]]":
    """Two processes as a cluster's own launcher starts them, without torchrun to clean up after them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    found = []
    for rank in ("0", "1"):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-m", "gradreg", *TRAIN]
        with (folder / f"errors{rank}").open("wb") as errors:
            found.append(
                subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, env=os.environ | place)
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_one_of_two_is_killed(victim: int, tmp_path: Path) -> None:
    both, metrics = started(tmp_path), tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
        assert all(process.poll() is None for process in both)
        time.sleep(0.05)
    both[victim].kill()
    assert both[1 - victim].wait(60) == 2
    both[victim].wait()
    said = (tmp_path / f"errors{1 - victim}").read_text()
    assert said.startswith(f"gradreg: Process {1 - victim} of 2 has lost another, which ended or is out of reach (")
    assert said.count("\n") == 1
    done = len(metrics.read_text().splitlines())
    assert 3 <= done < 400

    again = [sys.executable, "-m", "gradreg", "train", "--resume", "--run", "run"]
    alone = subprocess.Popen(again, cwd=tmp_path, stdout=subprocess.DEVNULL)
    while len(metrics.read_text().splitlines()) <= done:
        assert alone.poll() is None
        time.sleep(0.05)
    alone.send_signal(signal.SIGTERM)
    assert alone.wait(60) == 128 + signal.SIGTERM
