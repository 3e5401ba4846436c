"""Times of training steps, side by side: with a clock and a step of our own, what is found is known exactly."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from bench import measure
from bench.__main__ import main
from bench.arithmetic import step_forwards
from bench.recipe import SETS, cycle, fresh, step_key, training_steps
from bench.steps import show, step_times
from bench.steps_options import StepsOptions
from gradreg.config import tables
from gradreg.data import Images, load
from gradreg.objectives.base import Outcome
from gradreg.processes import joined
from gradreg.runs import Config, recipes
from gradreg.training.sources import from_config
from gradreg.training.step import Learner

DIGITS = ("mnist5k-at", "mnist5k-undefended")
LAZY = ("objective={ name = 'gradient', eps = 0.1, h = 0.1, lazy = 4 }",)


def recipe(name: str, *changes: str) -> dict[str, Any]:
    return tables.plain(recipes.config(name, changes))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Learner, int, int], float]], list[Learner]]:
    """Steps that take the seconds that a function of learner, step and calls so far says; returns who was called."""

    def installed(costs: Callable[[Learner, int, int], float]) -> list[Learner]:
        now, calls = [0.0], list[Learner]()

        def step(self: Learner, x: Tensor, y: Tensor, key: Any, number: int, epoch: float, factor: float) -> None:
            now[0] += costs(self, number, len(calls))
            calls.append(self)

        monkeypatch.setattr(Learner, "step", step)
        monkeypatch.setattr(measure, "perf_counter", lambda: now[0])
        return calls

    return installed


def cost(learner: Learner, number: int) -> float:
    lazy = getattr(learner.settings.objective, "lazy", 1)
    return {"Adversarial": 17.0, "Undefended": 3.0}.get(
        type(learner.settings.objective).__name__, 5.0 if number % lazy == 0 else 3.0
    )


def test_a_lazy_step_is_the_mean_over_its_cycle_and_the_best_round_counts(clock: Any) -> None:
    """The first two of three rounds are disturbed, with six calls each after six that warm up."""
    calls = clock(lambda learner, number, done: cost(learner, number) + 100 * (done // 6 in (1, 2)))
    records = [("at", recipe("mnist5k-at")), ("lazy", recipe("mnist5k-at", *LAZY)), ("plain", recipe(DIGITS[1]))]
    found = {each.networks: each.seconds for each in step_times(records, rounds=3)}
    assert found == {("at",): 17.0, ("lazy",): (5 + 3 * 3) / 4, ("plain",): 3.0}
    assert len(calls) == (1 + 3) * 6
    assert all(calls[begin : begin + 6] == calls[:6] for begin in range(6, 24, 6)), "all of them in turn, every round"


def test_the_order_of_records_does_not_matter(clock: Any) -> None:
    clock(lambda learner, number, done: cost(learner, number))
    records = [(f"{name}-{seed}", recipe(name, f"seed={seed}")) for name in DIGITS for seed in range(2)]
    there, back = (step_times(some, rounds=1) for some in (records, records[::-1]))
    assert [each.networks for each in there] == [(f"{name}-0", f"{name}-1") for name in DIGITS], "once per recipe"
    assert {step_key(each.settings): each.seconds for each in there} == {
        step_key(each.settings): each.seconds for each in back
    }


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        (("seed=3", "epochs=9", "held_out=100", "save_minutes=1"), True),
        (("schedule='constant'",), True),
        (("batch_size=32",), False),
        (("amp='bf16'",), False),
        (("ema=0.5",), False),
        (("clip_norm=1.0",), False),
        (("channels_last=true",), False),
        (("objective.steps=3",), False),
    ],
)
def test_the_key_is_of_what_a_step_does(changes: Sequence[str], same: bool) -> None:
    first, second = recipe("mnist5k-at"), recipe("mnist5k-at", *changes)
    assert (step_key(first) == step_key(second)) == same
    assert step_key(json.loads(step_key(second))) == step_key(second), "that of a file of times is that of the recipe"


def test_a_step_is_the_trainers_own_and_leaves_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Learner, dict[str, Tensor], Tensor, float]] = []
    own = Learner.step

    def step(self: Learner, x: Tensor, y: Tensor, key: Any, number: int, epoch: float, factor: float) -> Outcome:
        seen.append((self, {k: v.clone() for k, v in self.model.named_parameters()}, x, epoch))
        return own(self, x, y, key, number, epoch, factor)

    monkeypatch.setattr(Learner, "step", step)
    more = ("batch_size=4", "clip_norm=1.0", "ema=0.9", "amp='bf16'", "channels_last=true")
    for name in DIGITS:
        (tmp_path / f"{name}.json").write_text(json.dumps({"model": name, "recipe": recipe(name, *more)}))
    out = tmp_path / "steps.json"
    show(StepsOptions(records=tuple(sorted(tmp_path.glob("*.json"))), json=out, rounds=1), Console(quiet=True))
    for learner, before, x, epoch in seen:
        assert all(torch.equal(weight, before[name]) for name, weight in learner.model.named_parameters())
        assert (len(x), learner.settings.amp) == (4, "bf16")
        assert learner.average is not None
        assert learner.model.training
        assert epoch > 1e5
        assert "clipped" in learner.sums
    assert Counter(id(learner) for learner, *_ in seen) == dict.fromkeys({id(each[0]) for each in seen}, 2)
    record = json.loads(out.read_text())
    assert record["options"] == {"rounds": 1, "threads": 1}
    assert set(record["machine"]) == {"processor", "torch", "threads", "commit"}
    assert [(each["networks"], each["seconds"] > 0) for each in record["steps"]] == [([name], True) for name in DIGITS]
    assert step_key(record["steps"][0]["settings"]) == step_key(recipe(DIGITS[0], *more))


def test_steps_of_a_training_are_those_of_its_batches() -> None:
    given = recipe("mnist5k-at", "epochs=3", "held_out=130", "batch_size=96")
    with joined("cpu") as processes:
        source, shape = from_config(tables.build(Config, given), processes, None)
        assert training_steps(given) == sum(source.steps(epoch) for epoch in range(3))
    train = load("mnist5k").train
    assert isinstance(train, Images)
    assert SETS["mnist5k"] == (len(train.labels), tuple(train.pixels.shape[1:]))
    _, x, y = fresh(tables.build(Config, given), 12)
    assert (tuple(x.shape[1:]), int(y.max()) + 1) == (SETS["mnist5k"].shape, shape.classes)


def test_a_look_at_the_curvature_is_a_part_of_the_cycle() -> None:
    """A forward more in every second of the penalised steps."""
    looks = recipe("mnist5k-at", LAZY[0].replace("}", ", omega = 2 }"))
    assert cycle(tables.build(Config, looks).objective) == 8
    assert step_forwards(looks) == pytest.approx(step_forwards(recipe("mnist5k-at", *LAZY)) + 1 / 8, rel=0.03)


def test_what_cannot_be_timed_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    phased = recipe("mnist5k-at", "phases=[{ start = 1, batch_size = 8 }]")
    elsewhere = recipe("mnist5k-at", "data='folder:photos'")
    path = tmp_path / "record.json"
    for content, words in (
        ({}, "record.json is damaged (KeyError: 'recipe'); pass a record of `python -m bench verdict`"),
        ({"model": "m", "recipe": phased}, "phases and train_only must be empty"),
        ({"model": "m", "recipe": elsewhere}, "data must be one of cifar10, fashion-mnist, mnist5k"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(SystemExit):
            main(["steps", str(path), "--rounds", "1"])
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["steps", "--rounds", "1"])
    assert "records must name at least one file" in capsys.readouterr().err
