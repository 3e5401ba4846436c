"""The launcher that users have: torchrun."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.distributed.run import parse_args
from torch.testing import assert_close

from gradreg.errors import ConfigError
from gradreg.processes import joined, speaks

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
TWO_PROCESSES = [*TORCHRUN, "--nproc-per-node", "2"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def test_our_options_pass_through_torchruns_parser() -> None:
    """It takes what abbreviates an option of its own for that option, wherever it stands: --run would be --run-path."""
    ours = ["train", "mnist5k-l2", "--run-dir", "runs/x", "--set", "epochs=2", "--resume", "--data-dir", "/data"]
    parsed = parse_args(["--nproc-per-node", "2", "-m", "gradreg", *ours])
    assert (parsed.training_script, parsed.training_script_args) == ("gradreg", ours)
    parsed = parse_args(["-m", "gradreg", "--", "train", "mnist5k-l2", "--run", "runs/x"])
    assert parsed.training_script_args == ["train", "mnist5k-l2", "--run", "runs/x"]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "WORLD_SIZE=2 needs RANK, MASTER_ADDR, MASTER_PORT; got no RANK, MASTER_ADDR, MASTER_PORT: start with"),
        ({"RANK": "0", "MASTER_ADDR": "localhost"}, "got no MASTER_PORT: start with torchrun, or unset WORLD_SIZE."),
        ({"WORLD_SIZE": "two"}, "The environment variable WORLD_SIZE must be a whole number; got 'two'."),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE must be at least 1; got 0."),
        ({"RANK": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "9"}, "RANK must be from 0 to 1 with WORLD_SIZE=2"),
        ({"RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "99999"}, "MASTER_PORT must be from 1 to 65535"),
        ({"WORLD_SIZE": "1", "LOCAL_RANK": ""}, "The environment variable LOCAL_RANK must be a whole number; got ''."),
    ],
)
def test_half_of_a_launchers_environment_is_refused(
    environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch would raise, or wait for half an hour for processes that nobody started."""
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"WORLD_SIZE": "2"} | environment).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as error, joined("cpu"):
        pass
    assert said in str(error.value)


def test_a_rank_alone_does_not_silence_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "1")
    assert speaks()


@pytest.mark.slow
def test_torchrun_trains_with_two_processes_and_one_voice(tmp_path: Path) -> None:
    settings = ["epochs=2", "held_out=3900", "probe.images=20", "batch_size=20"]
    command = [*TWO_PROCESSES, "-m", "gradreg", "train", "mnist5k-l2", "--run-dir", str(tmp_path / "run")]
    command += [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Best epoch") == 1, done.stdout
    assert done.stdout.count("epoch 1/2") == 1
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [5, 10]
    assert rows[-1]["held_out"] == 3900


NETWORK = """
from torch import nn

def plain(classes):
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 32), nn.GELU(), nn.Linear(32, classes))
"""


EPOCHS = 25
SETTINGS = [f"epochs={EPOCHS}", "held_out=3800", "probe.images=20", "batch_size=20", "model={name='net:plain'}"]


def command(run: str, launcher: Sequence[str] = TWO_PROCESSES) -> list[str]:
    options = [part for setting in SETTINGS for part in ("--set", setting)]
    return [*launcher, "-m", "gradreg", "train", "mnist5k-l2", "--run-dir", run, *options]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a network without batch statistics, which one process and two would see differently, and a whole run."""
    folder = tmp_path_factory.mktemp("launched")
    (folder / "net.py").write_text(NETWORK)
    subprocess.run(command("whole"), cwd=folder, env=ENVIRONMENT, check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_two_machines_with_a_process_each_train_as_one_with_two(place: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = ["--master-addr", "127.0.0.1", "--master-port", str(free.getsockname()[1])]
    pipe = subprocess.PIPE
    machines = []
    for rank in range(2):
        launcher = [*TORCHRUN, "--nnodes", "2", "--node-rank", str(rank), *meeting]
        machine = subprocess.Popen(
            command("two", launcher), cwd=place, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True
        )
        machines.append(machine)
    said = [machine.communicate(timeout=300) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert [output.count("Best epoch") for output, _ in said] == [1, 0], "the first process speaks, the other is quiet"
    whole, two = (load_file(place / run / "last.safetensors") for run in ("whole", "two"))
    for name, weight in whole.items():
        assert_close(two[name], weight, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("as_in_a_terminal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_torchrun_saves_and_one_process_finishes(place: Path, number: signal.Signals) -> None:
    """It passes the signal on to its processes, which are in groups of their own, and waits for them for 30 seconds."""
    metrics = place / number.name / "metrics.jsonl"
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(number.name), cwd=place, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True)
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert said.count("and saved: continue with --resume.") == 1, errors
    assert 3 <= len(metrics.read_text().splitlines()) < EPOCHS

    alone = [sys.executable, "-m", "gradreg", "train", "--run", number.name, "--resume", "--trust"]
    subprocess.run(alone, cwd=place, env=ENVIRONMENT, check=True, capture_output=True)
    assert len(metrics.read_text().splitlines()) == EPOCHS
    whole, resumed = (load_file(place / run / "last.safetensors") for run in ("whole", number.name))
    for name, weight in whole.items():
        assert_close(resumed[name], weight, rtol=0, atol=1e-5)
