"""Settings from tables: what is accepted, and the sentence for every mistake."""

import tomllib
from typing import Any

import pytest

from gradreg.config import tables, toml
from gradreg.errors import ConfigError
from gradreg.objectives import Adversarial, Gradient, Noise, Undefended
from gradreg.runs import recipes
from gradreg.runs.optimizers import SGD, AdamW
from gradreg.runs.schedules import Linear, OneCycle
from gradreg.runs.settings import Config, Phase, Probe

SMALLEST: dict[str, Any] = {"data": "mnist5k", "model": {"name": "small"}}


def config(**changes: Any) -> Config:
    return tables.build(Config, SMALLEST | changes)


def test_tables_become_dataclasses() -> None:
    made = config(
        epochs=5,
        objective={"name": "noise", "sigma": 1, "inner": {"name": "gradient", "eps": "8/255", "threat": "linf"}},
        optimizer="adamw",
        schedule={"name": "linear", "knots": [[0, 1], [5, 0.5]]},
        probe={"threat": "linf", "eps": "8/255"},
        phases=[{"start": 2, "batch_size": 32}],
    )
    assert made.objective == Noise(1.0, Gradient("linf", eps=8 / 255))
    assert made.optimizer == AdamW()
    assert made.schedule == Linear(((0.0, 1.0), (5.0, 0.5)))
    assert made.probe == Probe("linf", 8 / 255)
    assert made.phases == (Phase(2, batch_size=32),)
    assert (made.during(1).batch_size, made.during(2).batch_size) == (128, 32)
    assert config().objective == Undefended()
    assert config(objective=Adversarial()).objective == Adversarial()


def test_what_is_written_is_what_is_read() -> None:
    for name in recipes.names():
        made = recipes.config(name)
        assert tables.build(Config, toml.parse(toml.dumps(tables.plain(made)), "it")) == made, name


def test_toml_of_strange_texts_and_keys() -> None:
    table = {"a b": 'quote " and \\ and \n and \x7f é', "list": [1, 2.5, True, {"x": []}], "none": {}}
    assert tomllib.loads(toml.dumps(table)) == table
    with pytest.raises(ConfigError, match="A recipe holds numbers, strings, lists and tables; got "):
        toml.dumps({"a": object()})


def test_overrides_go_where_their_path_says() -> None:
    table = {"epochs": 3, "objective": "gradient", "model": {"name": "small"}}
    settings = ["epochs=5", "objective.lam=1", "objective.threat=linf", "model.activation = 'relu'", "probe.eps=8/255"]
    assert toml.override(table, settings) == {
        "epochs": 5,
        "objective": {"name": "gradient", "lam": 1, "threat": "linf"},
        "model": {"name": "small", "activation": "relu"},
        "probe": {"eps": "8/255"},
    }
    assert table == {"epochs": 3, "objective": "gradient", "model": {"name": "small"}}


def test_a_path_of_thousands_of_names_is_refused() -> None:
    assert toml.override({}, ["a." * 39 + "b=1"])
    with pytest.raises(ConfigError, match="A setting must have at most 40 names with dots between; got 3001"):
        toml.override({}, ["a." * 3000 + "b=1"])


@pytest.mark.parametrize("setting", ["epochs", "=3", "a..b=1"])
def test_what_is_no_setting(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"must have the form key=value, for example objective\.lam=1; got "):
        toml.override({}, [setting])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, r"There is no setting 'epoch' (did you mean 'epochs'?)."),
        ({"zzz": 3}, "There is no setting 'zzz': choose one of objective, epochs,"),
        ({"objective": {"name": "gradient", "lamb": 1}}, "no setting 'objective.lamb' (did you mean 'objective.la"),
        ({"objective": {"name": "gradiant"}}, "; got 'gradiant' (did you mean 'gradient'?)."),
        ({"objective": {"eps": 1.0}}, "objective.name must be one of undefended, gradient,"),
        ({"objective": 3}, "objective must be a table with a name, one of undefended, gradient,"),
        ({"schedule": "cosine"}, "schedule.name must be one of constant, piecewise, linear, one-cycle; got 'cosine'."),
        ({"epochs": "many"}, "epochs must be a whole number; got 'many'."),
        ({"epochs": 2.5}, "epochs must be a whole number; got 2.5."),
        ({"epochs": True}, "epochs must be a whole number; got True."),
        ({"ema": "much"}, "ema must be a number; got 'much'."),
        ({"compile": 1}, "compile must be True or False; got 1."),
        ({"data": 5}, "data must be a string; got 5."),
        ({"augment": "flip"}, "augment must be a list; got 'flip'."),
        ({"model": "small"}, "model must be a table such as { name = … }; got 'small'."),
        ({"probe": 0.5}, "probe must be a table with threat, eps, steps, images; got 0.5."),
        ({"probe": {"threat": "l2"}}, "The setting 'probe.eps' is missing."),
        ({"amp": "fp8"}, "amp must be one of 'off', 'bf16'; got 'fp8'."),
        ({"schedule": {"name": "linear", "knots": [[0, 1, 2]]}}, "knots[0] must be a list of 2; got [0, 1, 2]."),
        ({"epochs": 0}, "epochs must be at least 1; got 0."),
        ({"batch_size": 0}, "batch_size must be at least 1; got 0."),
        ({"accumulate": 0}, "accumulate must be at least 1; got 0."),
        ({"accumulate": 3}, "batch_size must be divisible by accumulate = 3; got 128."),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1; got 1.0."),
        ({"clip_norm": 0.0}, "clip_norm must be positive; got 0.0."),
        ({"ema": 1.0}, "ema must be above 0 and below 1; got 1.0."),
        ({"sync_bn": True, "compile": True}, "sync_bn and compile must not both be true"),
        ({"save_minutes": -1}, "save_minutes must be at least 0; got -1."),
        ({"held_out": 0}, "held_out must be at least 1 (images that pick the best epoch); got 0."),
        ({"model": {}}, "The setting 'model.name' is missing."),
        ({"model": {"name": 3}}, "model.name must be a string; got 3."),
        ({"phases": [{"start": 40}]}, "phases must start at increasing epochs from 0 to 29; got [40]."),
        ({"probe": {"threat": "l2", "eps": 0}}, "probe.eps must be positive; got 0."),
        ({"probe": {"threat": "l2", "eps": 1, "steps": 0}}, "probe.steps must be at least 1; got 0."),
        ({"probe": {"threat": "l2", "eps": 1, "images": 0}}, "probe.images must be at least 1; got 0."),
        ({"schedule": {"name": "piecewise", "milestones": [3, 2]}}, "at increasing epochs from 0 on; got 3, 2."),
        ({"schedule": {"name": "linear", "knots": [[0, 1]]}}, "must be at least two pairs (epoch, factor); got 1."),
        (
            {"schedule": {"name": "one-cycle", "warmup": 1}},
            "schedule.warmup must be at least 0 and below 1 (a fraction of training); got 1.",
        ),
    ],
)
def test_mistakes_get_a_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as mistake:
        config(**changes)
    assert message in str(mistake.value)
    assert str(mistake.value).endswith(".")


def test_missing_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="The setting 'data' is missing"):
        tables.build(Config, {"model": {"name": "small"}})


def test_a_recipe_that_is_no_toml_or_not_there(tmp_path: Any) -> None:
    (tmp_path / "bad.toml").write_text("epochs = = 3")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        recipes.config(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        recipes.config(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match=r"no recipe 'mnist5k-l1' \(did you mean 'mnist5k-l"):
        recipes.config("mnist5k-l1")


def test_every_recipe_opens_with_its_command_and_a_line_about_it() -> None:
    for name, about in recipes.names().items():
        first = recipes.text(name).splitlines()[0]
        place = " --set data=folder:PATH" if name.startswith("folder-") else ""
        assert first == f"# gradreg train {name} --run runs/{name}{place}"
        assert 20 < len(about) < 110
    assert config(optimizer={"name": "sgd"}).optimizer == SGD()
    assert config().schedule == OneCycle()


def test_a_phases_copies_are_for_that_phase_alone() -> None:
    phases = [{"start": 0, "size": 16, "data": "folder:small"}, {"start": 2, "size": 32}]
    made = tables.build(Config, {"data": "folder:images", "model": {"name": "small"}, "epochs": 4, "phases": phases})
    assert [made.during(epoch).data for epoch in range(4)] == ["folder:small"] * 2 + ["folder:images"] * 2
    assert [made.during(epoch).size for epoch in range(4)] == [16, 16, 32, 32]


def test_an_objective_without_settings_says_so() -> None:
    given = {"data": "mnist5k", "model": {"name": "small"}, "objective": {"name": "undefended", "lam": 1}}
    with pytest.raises(ConfigError, match=r"There is no setting 'objective.lam': objective has no settings here"):
        tables.build(Config, given)
