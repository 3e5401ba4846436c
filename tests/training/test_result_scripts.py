"""What the scripts in results train and judge: how rows differ, and that they can begin."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradreg.config import tables
from gradreg.config.fractions import fraction
from gradreg.models import build
from gradreg.models.registry import complete
from gradreg.objectives import Gradient, Undefended
from gradreg.processes import Processes
from gradreg.report.tables.settings import differences, flat
from gradreg.runs import recipes
from gradreg.runs.settings import Config
from gradreg.training.step import Learner

RESULTS = Path(__file__).parents[2] / "results"
ALONE = Processes(0, 1, torch.device("cpu"))
# In the place of gradreg and python: writes down what it was asked, and leaves the files that say that it was done.
PRETENDED = r"""#!/usr/bin/env bash
printf '%s\037' "$@" >> "$ASKED"
printf '\n' >> "$ASKED"
kind=$1
[ "$1" = -m ] && kind=$2 run=${4-}
while [ $# -gt 1 ]; do
    [ "$kind $1" = "train --run" ] && mkdir -p "$2" && touch "$2/"{config.toml,metrics.jsonl,steps.jsonl}
    [ "$kind $1" = "bench --out" ] && mkdir -p "$2" && touch "$2/$(basename "$run").json"
    shift
done
exit 0
"""


def asked(folder: Path, *names: str, script_name: str = "shootout.sh", **more: str) -> list[list[str]]:
    """The commands that the script gives, in a copy of its folder."""
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("gradreg", "python"):
        script = folder / "bin" / name
        script.write_text(PRETENDED)
        script.chmod(0o755)
    for name in (script_name, "steps.sh"):
        shutil.copy(RESULTS / name, folder / name)
    log = folder / "asked"
    log.write_text("")
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "ASKED": str(log)} | more
    command = ["bash", str(folder / script_name), str(folder / "runs"), str(folder / "data"), *names]
    subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [line.split("\037")[:-1] for line in log.read_text().split("\n")[:-1]]


def config(command: list[str]) -> Config:
    changes = [each.removeprefix("--set=") for each in command if each.startswith("--set=")]
    return recipes.config(command[1], changes)


def name_of(command: list[str]) -> str:
    """That of the run, of a command that trains or judges it."""
    return Path(command[command.index("--run") + 1] if command[0] == "train" else command[3]).name


def option(command: list[str], name: str) -> str:
    return command[command.index(f"--{name}") + 1]


def check_takes_a_step(row: Config) -> None:
    """A narrow network does, in the arithmetic of the row, after the ramp."""
    narrow = {} if row.model["name"] == "small" else {"width": 4}
    options = complete({**row.model, **narrow}, 10, 3)
    learner = Learner(build(options.pop("name"), **options), row, ALONE)
    outcome = learner.step(torch.rand(4, 3, 16, 16), torch.tensor([1, 2, 3, 4]), (0, 0), 0, 2.0, 0.1)
    assert outcome.loss.isfinite()
    assert learner.is_finite()


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    return asked(tmp_path_factory.mktemp("shootout"))


def test_rows_differ_in_objective_and_seed_alone(commands: list[list[str]]) -> None:
    rows = [config(command) for command in commands if command[0] == "train"]
    assert len(rows) == 39
    assert {row.seed for row in rows} == {0, 1, 2}
    assert len({row.objective for row in rows}) == 13
    # The undefended network is probed at a smaller radius, which picks its epoch and changes no weight.
    assert all(replace(row, objective=rows[0].objective, seed=0, probe=rows[0].probe) == rows[0] for row in rows)
    assert {row.probe.eps for row in rows if row.probe and row.objective != Undefended()} == {8 / 255}
    assert (rows[0].ema, rows[0].label_smoothing) == (0.998, 0.1)
    judged = [command for command in commands if command[:3] == ["-m", "bench", "verdict"]]
    assert [name_of(command) for command in judged] == [name_of(each) for each in commands if each[0] == "train"]
    assert {(option(each, "threat"), option(each, "eps")) for each in judged} == {("linf", "8/255")}
    assert commands[-1] == ["-m", "docs.make", "docs/robustness.md", "docs/shootout.svg"]


def test_every_row_takes_a_step(commands: list[list[str]]) -> None:
    for row in [config(command) for command in commands if command[0] == "train"][:13]:
        assert row.amp == "bf16"
        check_takes_a_step(row)


def test_names_settings_and_what_is_done_already(tmp_path: Path) -> None:
    found = asked(tmp_path, "label-start", "at-seed1", SHOOTOUT_SET="epochs=30 label_smoothing=0.2")
    trained = [command for command in found if command[0] == "train"]
    runs = [name_of(command) for command in trained]
    assert runs == ["label-start-seed0", "label-start-seed1", "label-start-seed2", "at-seed1"]
    assert {(config(each).epochs, config(each).label_smoothing) for each in trained} == {(30, 0.2)}
    assert config(trained[0]).objective.weight_epochs == 30  # type: ignore[attr-defined]
    (tmp_path / "shootout" / "label-start-seed1.json").unlink()
    again = asked(tmp_path, "label-start")
    assert [name_of(each) for each in again] == ["label-start-seed1"] * 2, "what is judged is not done again"
    assert "--resume" in again[0]
    for script in ("shootout.sh", "goals.sh"):
        with pytest.raises(subprocess.CalledProcessError) as refused:
            asked(tmp_path, "at-seed7", script_name=script)
        assert re.search(r"There is no (trial or )?row at-seed7: choose among .*", refused.value.stderr)
        assert refused.value.returncode == 2


def test_rows_of_goals_are_trained_alike_and_judged_at_their_radius(tmp_path: Path) -> None:
    found = asked(tmp_path, script_name="goals.sh")
    rows = {name_of(each): config(each) for each in found if each[0] == "train"}
    verdicts = {name_of(each): each for each in found if each[:2] == ["-m", "bench"]}
    assert rows.keys() == verdicts.keys()
    tried = {name: row for name, row in rows.items() if option(verdicts[name], "split") == "held-out"}
    assert {Path(option(verdicts[name], "out")).name for name in tried} == {"trials"}
    places: dict[tuple[str, ...], list[bool]] = {}
    for name, row in tried.items():
        place = row.data, option(verdicts[name], "threat"), option(verdicts[name], "eps")
        if not name.startswith("c-"):  # which choose the cheap row
            places.setdefault(place, []).append(isinstance(row.objective, Gradient))
    assert places
    assert all(2 * sum(penalised) == len(penalised) for penalised in places.values()), "as many trials for both"
    assert {row.seed for row in tried.values()} == {0}
    for dial in ("batch_size", "augment", "ema", "label_smoothing", "optimizer"):
        for_at, cheap = (
            {str(getattr(row, dial)) for name, row in tried.items() if name.startswith(first)}
            for first in ("at-", "c-")
        )
        assert cheap <= for_at, f"{dial} is tried for adversarial training too"
    for name, row in rows.items():
        objective, probe = row.objective, row.probe
        assert probe is not None
        assert (row.amp, row.held_out, row.clip_norm, row.on_overfitting) == ("bf16", 2000, 3.0, "ignore")
        assert probe.images == 500
        assert option(verdicts[name], "threat") == objective.threat == probe.threat  # type: ignore[attr-defined]
        assert fraction(option(verdicts[name], "eps")) == pytest.approx(probe.eps)
        assert isinstance(objective, Gradient) is ("at" not in name.split("-"))
        if isinstance(objective, Gradient):
            assert (objective.alignment, objective.omega, objective.noise > 0) == (False, 0, True)
        if name in tried:
            continue
        assert Path(option(verdicts[name], "out")).name == "goals"
        kind = name.rpartition("-seed")[0].rpartition("-")[0]
        other = rows[f"{kind}-at-seed{row.seed}"]
        assert (row.data, row.model, row.batch_size) == (other.data, other.model, other.batch_size)
        assert {f"{name.rpartition('-seed')[0]}-seed{seed}" for seed in (0, 1, 2)} <= rows.keys()
        assert row.ema is not None, "of the weights of every row an average is judged"
    # What bf16 may be refused for.
    for row in {row.objective: row for row in rows.values() if isinstance(row.objective, Gradient)}.values():
        if row.model["name"] == "compact":
            check_takes_a_step(row)
    assert found[-1] == ["-m", "docs.make", "docs/robustness.md"]


def test_dials_change_one_setting_each_and_can_begin(tmp_path: Path) -> None:
    found = asked(tmp_path, script_name="dials.sh")
    runs = {name_of(each): config(each) for each in found if each[0] == "train"}
    judged = {name_of(each): each for each in found if each[:2] == ["-m", "bench"]}
    assert runs.keys() == judged.keys()
    for name, row in runs.items():
        middle = flat(tables.plain(runs[f"{name.partition('-')[0]}-middle"]))
        assert len(differences(flat(tables.plain(row)), middle)) == (not name.endswith("-middle")), name
        assert isinstance(row.objective, Gradient)
        assert row.probe is not None
        assert fraction(option(judged[name], "eps")) == pytest.approx(row.probe.eps)
        assert (option(judged[name], "split"), Path(option(judged[name], "out")).name) == ("held-out", "dials")
    for row in runs.values():
        if row.model["name"] == "compact":
            check_takes_a_step(row)
    assert found[-1] == ["-m", "docs.make", "docs/robustness.md", "docs/dials-near.svg", "docs/dials-far.svg"]
    again = asked(tmp_path, "far", script_name="dials.sh", DIALS_SET="epochs=1")
    assert again == []


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


def test_networks_are_trained_by_their_recipes_evaluated_and_shipped(tmp_path: Path) -> None:
    found = asked(tmp_path, script_name="networks.sh", NETWORKS_EVALUATE="--autoattack linf=8/255")
    assert [each[0] for each in found] == ["train", "-m", "evaluate", "ship"] * 6
    assert len({each[1] for each in found if each[0] == "train"}) == 6
    for first in range(0, len(found), 4):
        train, halved, evaluate, ship = found[first : first + 4]
        row = config(train)
        assert (row.epochs >= 30) is (row.model["name"] == "residual")
        assert ("--note" in ship) is (row.data == "cifar10")
        assert isinstance(row.objective, Gradient)
        assert option(evaluate, "threat") == row.objective.threat
        assert option(evaluate, "autoattack") == "linf=8/255"
        assert option(ship, "name") == train[1]
        assert option(ship, "evaluation") == f"{evaluate[1]}/evaluation"
        assert halved == ["-m", "bench", "halved", option(train, "run"), evaluate[1]]
        assert evaluate[1] == ship[1]
        check_takes_a_step(row)
