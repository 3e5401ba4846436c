"""A user's own code during training: what it sees, that it changes nothing, and that it can end a run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import digits, same_weights, tiny_fit
from torch import nn

from gradreg.errors import ConfigError
from gradreg.training import EpochEnd, StepEnd


def test_steps_and_epochs_are_seen_with_the_runs_own_numbers() -> None:
    steps: list[StepEnd] = []
    epochs: list[EpochEnd] = []
    fitted = tiny_fit(epochs=2, ema=None, on_step=steps.append, on_epoch=epochs.append)
    assert [at.step for at in steps] == list(range(1, 11))
    assert [at.epoch for at in steps] == [1] * 5 + [2] * 5
    assert [at.metrics for at in epochs] == fitted.metrics
    assert [(at.epoch, at.step) for at in epochs] == [(1, 5), (2, 10)]
    for epoch in (1, 2):
        losses = torch.stack([at.loss for at in steps if at.epoch == epoch])
        assert float(losses.mean()) == pytest.approx(fitted.metrics[epoch - 1]["loss"])
        assert [at.lr for at in steps if at.epoch == epoch][-1] == pytest.approx(fitted.metrics[epoch - 1]["lr"])
    assert "penalty" in steps[0].scalars
    assert not any(value.requires_grad for at in steps for value in (at.loss, *at.scalars.values()))


class Careless:
    """Leaves everything as it should not be: modes, gradients, random state."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.calls, self.modes = model, 0, set[tuple[str, bool]]()

    def _disturb(self, kind: str, model: nn.Module) -> None:
        self.modes.add((kind, model.training))
        self.calls += 1
        torch.manual_seed(self.calls)
        self.model.train(not self.model.training)
        sum(weight.square().sum() for weight in self.model.parameters()).backward()  # type: ignore[union-attr]

    def on_step(self, at: StepEnd) -> None:
        self._disturb("step", at.model)

    def on_epoch(self, at: EpochEnd) -> None:
        self._disturb("epoch", at.model)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_training_does_not_notice_what_a_callback_does(tmp_path: Path, ema: float | None) -> None:
    from tiny import network

    tiny_fit(tmp_path / "alone", ema=ema, epochs=2)
    model = network()
    careless = Careless(model)
    tiny_fit(tmp_path / "watched", ema=ema, epochs=2, model=model, callbacks=[careless])
    assert careless.calls == 12
    assert careless.modes == {("step", True), ("epoch", False)}
    assert same_weights(tmp_path / "alone", tmp_path / "watched")


def test_stop_ends_with_the_epoch_and_resuming_goes_on(tmp_path: Path) -> None:
    def patience(at: StepEnd) -> None:
        if at.step == 7:
            at.stop()

    stopped = tiny_fit(tmp_path / "run", on_step=patience)
    assert [row["epoch"] for row in stopped.metrics] == [1, 2]
    assert [row["epoch"] for row in tiny_fit(tmp_path / "other", on_epoch=EpochEnd.stop).metrics] == [1]
    resumed = tiny_fit(tmp_path / "run", resume=True)
    assert [row["epoch"] for row in resumed.metrics] == [1, 2, 3]
    tiny_fit(tmp_path / "whole")
    assert same_weights(tmp_path / "run", tmp_path / "whole")


def test_an_error_of_a_callback_is_the_users_and_the_epoch_is_kept(tmp_path: Path) -> None:
    def fail(at: EpochEnd) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        tiny_fit(tmp_path / "run", on_epoch=fail)
    assert len(tiny_fit(tmp_path / "run", resume=True).metrics) == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"on_step": 3}, "on_step must be a function; got 3"),
        ({"on_epoch": "x"}, "on_epoch must be a function; got 'x'"),
        ({"callbacks": [print]}, "must have a method on_step or on_epoch; got <built-in function print>. Pass a func"),
        ({"callbacks": print}, "callbacks must be a sequence of objects"),
        ({"loggers": [print]}, "A logger must have the methods begin, log and end"),
        ({"loggers": "wandb"}, "loggers must be a sequence of objects; got 'wandb'"),
    ],
)
def test_what_is_no_callback_is_refused_before_any_work(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        tiny_fit(tmp_path / "run", data=digits(40), **options)
    assert not (tmp_path / "run").exists()
