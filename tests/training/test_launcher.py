"""The launcher that users have: torchrun."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_torchrun_trains_with_two_processes_and_one_voice(tmp_path: Path) -> None:
    settings = ["epochs=2", "held_out=3900", "probe.images=20", "batch_size=20"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "gradreg", "--"]
    command += ["train", "mnist5k-l2", "--run", str(tmp_path / "run")]
    command += [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("Best epoch") == 1
    assert done.stdout.count("epoch 1/2") == 1
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [5, 10]
    assert rows[-1]["held_out"] == 3900
