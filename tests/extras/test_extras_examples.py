"""The examples with other people's libraries, and the files for clusters, run as far as one machine can."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from example_runs import EXAMPLES, QUIET, WITH_LIBRARIES, run_example
from gradreg.runs import recipes
from gradreg.runs.directory import RunDirectory

SMALL = ["mnist5k-undefended", "--set", "epochs=1", "--set", "device=cpu"]


@pytest.mark.parametrize("name", WITH_LIBRARIES)
def test_the_loop_is_the_plain_loop(name: str, tmp_path: Path) -> None:
    assert "weights differ from the plain loop's by at most" in run_example(name, tmp_path)


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """One node with Slurm's commands: srun runs a command here, scontrol names this host and notes what is requeued."""
    programs = tmp_path / "bin"
    programs.mkdir()
    stand_ins = {
        "srun": 'exec "$@"',
        "scontrol": f'[ "$1" = show ] && echo 127.0.0.1 || echo "$@" >> {tmp_path}/requeued',
        "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
    }
    for name, body in stand_ins.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "2"}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **QUIET, **slurm, "PATH": path, "RUN": str(tmp_path / "run"), "PORT": free_port()}


def test_slurm_trains_and_does_not_requeue_what_is_done(cluster: dict[str, str], tmp_path: Path) -> None:
    subprocess.run(["bash", EXAMPLES / "slurm.sbatch", *SMALL], env=cluster, check=True, timeout=300)
    assert len(RunDirectory(tmp_path / "run").metrics()) == 1
    assert not (tmp_path / "requeued").exists()
    refused = subprocess.run(["bash", EXAMPLES / "slurm.sbatch", "no-such-recipe"], env=cluster, timeout=300)
    assert refused.returncode != 0
    assert not (tmp_path / "requeued").exists(), "what is refused would be refused again"


def test_slurm_stops_in_time_and_the_requeued_job_finishes(cluster: dict[str, str], tmp_path: Path) -> None:
    run, long = tmp_path / "run", [*SMALL, "--set", "epochs=2", "--set", "save_minutes=0"]
    job = subprocess.Popen(["bash", EXAMPLES / "slurm.sbatch", *long], env=cluster)
    deadline = time.monotonic() + 120
    while not list(run.glob("state-*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=120) != 0
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert len(RunDirectory(run).metrics()) < 2
    subprocess.run(["bash", EXAMPLES / "slurm.sbatch", *long], env=cluster, check=True, timeout=300)
    assert len(RunDirectory(run).metrics()) == 2


def test_skypilots_commands_train_and_resume(cluster: dict[str, str], tmp_path: Path) -> None:
    task = yaml.safe_load((EXAMPLES / "skypilot.yaml").read_text())
    known = {"name", "num_nodes", "resources", "workdir", "envs", "file_mounts", "setup", "run"}
    assert task.keys() == known
    assert set(task["envs"]) == {"RECIPE", "RUN", "PORT"}
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipes.text("mnist5k-undefended").replace("epochs = ", "epochs = 1 # "))
    node = {"SKYPILOT_NODE_IPS": "127.0.0.1", "SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_RANK": "0"}
    environment = cluster | node | {"SKYPILOT_NUM_GPUS_PER_NODE": "2", "RECIPE": str(recipe)}
    for _ in range(2):
        subprocess.run(["bash", "-c", task["run"]], env=environment, check=True, timeout=300)
    assert len(RunDirectory(tmp_path / "run").metrics()) == 1
