"""The rows of results/shootout.sh and results/overfitting.sh: what differs between them, and that they can be begun."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradreg.models import build
from gradreg.models.registry import complete
from gradreg.objectives import Gradient, Undefended
from gradreg.processes import Processes
from gradreg.runs import recipes
from gradreg.runs.settings import Config
from gradreg.training.step import Learner

RESULTS = Path(__file__).parents[2] / "results"
ALONE = Processes(0, 1, torch.device("cpu"))
# In the place of gradreg: writes down what it was asked, and leaves the files that say that it was done.
PRETENDED = r"""#!/usr/bin/env bash
printf '%s\037' "$@" >> "$ASKED"
printf '\n' >> "$ASKED"
kind=$1
while [ $# -gt 1 ]; do
    [ "$kind $1" = "train --run" ] && mkdir -p "$2" && touch "$2/"{config.toml,metrics.jsonl,steps.jsonl}
    [ "$kind $1" = "evaluate --out" ] && mkdir -p "$2" && touch "$2/"{evaluation.json,images.csv,gallery.safetensors}
    shift
done
exit 0
"""


def asked(folder: Path, *names: str, script_name: str = "shootout.sh", **more: str) -> list[list[str]]:
    """The commands that the script gives, in a copy of its folder."""
    (folder / "bin").mkdir(exist_ok=True)
    script = folder / "bin" / "gradreg"
    script.write_text(PRETENDED)
    script.chmod(0o755)
    for name in (script_name, "steps.sh"):
        shutil.copy(RESULTS / name, folder / name)
    log = folder / "asked"
    log.unlink(missing_ok=True)
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "ASKED": str(log)} | more
    command = ["bash", str(folder / script_name), str(folder / "runs"), "data", *names]
    subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [line.split("\037")[:-1] for line in log.read_text().split("\n")[:-1]]


def config(command: list[str]) -> Config:
    changes = [each.removeprefix("--set=") for each in command if each.startswith("--set=")]
    return recipes.config(command[1], changes)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    return asked(tmp_path_factory.mktemp("shootout"))


def test_rows_differ_in_objective_and_seed_alone(commands: list[list[str]]) -> None:
    rows = [config(command) for command in commands if command[0] == "train"]
    assert len(rows) == 36
    assert {row.seed for row in rows} == {0, 1, 2}
    assert len({row.objective for row in rows}) == 12
    # The undefended network is probed at a smaller radius, which picks its epoch and changes no weight.
    assert all(replace(row, objective=rows[0].objective, seed=0, probe=rows[0].probe) == rows[0] for row in rows)
    assert {row.probe.eps for row in rows if row.probe and row.objective != Undefended()} == {8 / 255}
    assert (rows[0].ema, rows[0].label_smoothing) == (0.998, 0.1)
    judged = [command for command in commands if command[0] == "evaluate"]
    assert all(command[-2:] == ["--threat", "linf"] for command in judged), "by the default suite, standard"
    assert len(judged) == 36
    assert commands[-1][0] == "report"


def test_every_row_takes_a_step(commands: list[list[str]]) -> None:
    first = [config(command) for command in commands if command[0] == "train"][:12]
    for row in first:
        options = complete({**row.model, "width": 4}, 10, 3)
        learner = Learner(build(options.pop("name"), **options), row, ALONE)
        outcome = learner.step(torch.rand(4, 3, 16, 16), torch.tensor([1, 2, 3, 4]), (0, 0), 0, 2.0, 0.1)
        assert outcome.loss.isfinite()
        assert learner.is_finite()


def test_names_settings_and_what_is_done_already(tmp_path: Path) -> None:
    found = asked(tmp_path, "label-start", "at-seed1", SHOOTOUT_SET="epochs=30 label_smoothing=0.2")
    trained = [command for command in found if command[0] == "train"]
    runs = [Path(command[command.index("--run") + 1]).name for command in trained]
    assert runs == ["label-start-seed0", "label-start-seed1", "label-start-seed2", "at-seed1"]
    assert {(config(each).epochs, config(each).label_smoothing) for each in trained} == {(30, 0.2)}
    assert config(trained[0]).objective.weight_epochs == 30  # type: ignore[attr-defined]
    again = asked(tmp_path, "at-seed1", SHOOTOUT_EVALUATE="--images 20")
    assert [command[0] for command in again] == ["train"], "what is evaluated is not evaluated again"
    assert "--resume" in again[0]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        asked(tmp_path, "at-seed7")
    assert "There is no row at-seed7: choose among undefended at" in refused.value.stderr


def test_runs_that_overfit_and_those_that_do_not_differ_in_noise_alone(tmp_path: Path) -> None:
    found = asked(tmp_path, script_name="overfitting.sh")
    runs = {Path(each[each.index("--run") + 1]).name: config(each) for each in found}
    assert len(runs) == 12
    for name, row in runs.items():
        control = runs[name.replace("plain", "noisy")]
        assert isinstance(row.objective, Gradient)
        assert isinstance(control.objective, Gradient)
        assert replace(row, objective=replace(row.objective, noise=control.objective.noise)) == control
        assert (row.objective.noise == 0) is ("plain" in name)
        assert (row.log_steps, row.on_overfitting, row.objective.alignment) == (10, "ignore", True)
    assert (tmp_path / "overfitting" / "fashion-mnist-plain-seed0" / "steps.jsonl").exists()
