"""Runs whose config.toml was edited by hand: every reader says in one sentence what is wrong, and in which file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import gradreg
from gradreg.cli.train import Train
from gradreg.config import tables
from gradreg.errors import GradregError
from gradreg.runs import Config, RunDirectory, open_model

OWN = {"name": f"{__name__}:network", "classes": 10, "width": 2}
BUILT_IN: dict[str, Any] = {"name": "compact", "classes": 10, "channels": 1, "width": 1}
ROW = {"epoch": 1, "hours": 0.1, "machine": "A"}
MISSING = object()


def network(classes: int, width: int = 2) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.Linear(width, classes))


def recipe(model: dict[str, Any]) -> dict[str, Any]:
    given = {
        "data": "mnist5k",
        "model": model,
        "objective": {"name": "gradient", "eps": 0.1},
        "probe": {"threat": "l2", "eps": 1.0},
        "epochs": 1,
    }
    return tables.plain(tables.build(Config, given))


def changed(table: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """With another value, or without the key."""
    first, _, key = path.partition(".")
    inner = table if not key else {**table[first]}
    inner = {**inner, (key or first): value}
    if value is MISSING:
        del inner[key or first]
    return {**table, first: inner} if key else inner


def load(run: Path) -> object:
    return gradreg.load(run, trust=True)


def opened(run: Path) -> object:
    return open_model(str(run), trust=True)


def resumed(run: Path) -> None:
    Train(run_dir=run, resume=True, trust="*").run()


@pytest.fixture
def broken(tmp_path: Path) -> Callable[..., str]:
    """A run with weights that belong to a recipe, and what a reader says of it, with its file shortened."""

    def say(read: Callable[[Path], object], model: dict[str, Any], path: str, value: object) -> str:
        run = RunDirectory(tmp_path / "run")
        run.start(changed(recipe(model), path, value))
        weights = network(10) if model is OWN else gradreg.build(**model)
        run.add_metrics(ROW)
        run.save_weights("best", weights.state_dict(), ROW)
        with pytest.raises(GradregError) as found:
            read(run.folder)
        assert "\n" not in str(found.value)
        return str(found.value).replace(str(run.folder / "config.toml"), "FILE")

    return say


@pytest.mark.parametrize("read", [load, opened])
@pytest.mark.parametrize(
    ("model", "path", "value", "words"),
    [
        (OWN, "model.classes", MISSING, "FILE: The setting 'model.classes' is missing."),
        (BUILT_IN, "model.classes", MISSING, "FILE is damaged: The setting 'model.classes' is missing; restore"),
        (OWN, "model.classes", "ten", "FILE: classes must be a whole number; got 'ten'."),
        (OWN, "model.width", "wide", "FILE: its model cannot be built (TypeError: "),
        (OWN, "model.depth", 3, f"FILE: Model {OWN['name']!r} takes no option 'depth'"),
        (OWN, "model.name", MISSING, "FILE is damaged: model must be a table with a name"),
        (OWN, "model.name", "compcat", "FILE: There is no model 'compcat' (did you mean 'compact'?)"),
        (BUILT_IN, "model.width", [1], "FILE is damaged"),
    ],
)
def test_a_model_that_cannot_be_built(
    read: Callable[[Path], object], model: dict[str, Any], path: str, value: object, words: str, broken: Any
) -> None:
    assert broken(read, model, path, value).startswith(words)


@pytest.mark.parametrize("read", [opened, resumed])
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("data", MISSING, "FILE: The setting 'data' is missing."),
        ("objective.eps", "far", "FILE: objective.eps must be a "),
        ("objective.name", MISSING, "FILE: objective.name must be one of "),
        ("objective", 3, "FILE: objective must be a table with a name"),
        ("optimizer.lr", -1, "FILE: optimizer.lr must be at least 0; got -1."),
        ("schedule.warm", 1, "FILE: There is no setting 'schedule.warm'"),
        ("probe.eps", MISSING, "FILE: The setting 'probe.eps' is missing."),
        ("probe.threat", "l3", "FILE: "),
    ],
)
def test_a_setting_that_is_none(
    read: Callable[[Path], object], path: str, value: object, words: str, broken: Any
) -> None:
    assert broken(read, OWN, path, value).startswith(words)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("model.width", "wide", "FILE: its model cannot be built (TypeError: "),
        ("model.name", "compcat", "FILE: There is no model 'compcat'"),
    ],
)
def test_a_run_is_not_resumed_with_such_a_model(path: str, value: object, words: str, broken: Any) -> None:
    assert broken(resumed, OWN, path, value).startswith(words)


def test_weights_beside_such_a_recipe(broken: Any) -> None:
    """Their architecture is given, so the recipe is there to be quoted alone."""

    def weights(run: Path) -> object:
        return open_model(str(run), data="mnist5k", architecture=str(OWN["name"]), trust=True)

    assert broken(weights, OWN, "objective", [3]) == "FILE is damaged: objective must have a name; got [3]."


@pytest.mark.parametrize("read", [load, opened])
def test_a_table_in_brackets_that_takes_in_what_follows(read: Callable[[Path], object], tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.start(recipe(BUILT_IN))
    run.save_weights("best", gradreg.build(**BUILT_IN).state_dict(), ROW)
    path = run.folder / "config.toml"
    # At its top, as one writes TOML by hand: everything after it is read as a part of it.
    path.write_text(f"[extra]\nnote = 1\n{path.read_text()}")
    with pytest.raises(GradregError) as found:
        read(run.folder)
    assert str(found.value) == f"{path} has its model within [extra]: tables in brackets go to the end of the file."
