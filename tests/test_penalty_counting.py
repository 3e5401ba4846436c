"""The loss as an object: the same loss, with steps that are counted."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from gradreg import GradientPenalty, regularized_loss
from gradreg.errors import ConfigError


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 3))


def batch(seed: int) -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return torch.rand(6, 3, 2, 2, generator=dice), torch.randint(0, 3, (6,), generator=dice)


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("options", [{"lazy": 3}, {"fraction": 0.5}, {"lazy": 2, "fraction": 0.5, "threat": "linf"}])
def test_it_is_the_loss_with_the_steps_counted(model: nn.Module, options: dict[str, object]) -> None:
    penalty = GradientPenalty(eps=0.1, **options)
    for step in range(5):
        x, y = batch(step)
        found = penalty(model, x, y)
        expected = regularized_loss(model, x, y, eps=0.1, step=step, **options)  # type: ignore[arg-type]
        assert_close(found.penalty, expected.penalty)
        assert_close(gradients(model, found.loss), gradients(model, expected.loss))


def test_what_is_no_step_is_not_counted(model: nn.Module) -> None:
    penalty = GradientPenalty(eps=0.1, lazy=2)
    whole = float(regularized_loss(model, *batch(0), eps=0.1).penalty)
    for step in (0, 1):
        penalty.load_state_dict({"steps": step})
        with torch.no_grad():
            assert float(penalty(model, *batch(0)).penalty) == pytest.approx(whole), "wherever training stands"
        assert penalty.steps == step
    penalty.load_state_dict({"steps": 0})
    penalised = [bool(penalty(model, *batch(i), advance=i % 2 == 1).penalty > 0) for i in range(8)]
    assert penalised == [True, True, False, False] * 2, "both micro-batches of an update, or neither"
    assert penalty.steps == 4


def test_updates_are_counted_whatever_the_micro_batches(model: nn.Module) -> None:
    """Five batches an epoch in updates of two: the last update of an epoch has one, which counting calls would miss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = GradientPenalty(eps=0.1, lazy=2).follow(optimizer)
    penalised = []
    for i in range(10):
        penalised.append(bool(penalty(model, *batch(i)).penalty > 0))
        if i % 5 in (1, 3, 4):
            optimizer.step()
    assert penalised == [True, True, False, False, True, False, False, True, True, False]
    assert penalty.steps == 6


class Wrapper:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


def test_a_wrapped_optimizer_is_followed_and_a_skipped_update_is_not_counted(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapper: Any = Wrapper(optimizer)
    penalty = GradientPenalty(eps=0.1, lazy=2).follow(wrapper)
    scaler = torch.amp.GradScaler("cpu")
    for bad in (True, False):
        loss = penalty(model, *batch(0)).loss
        scaler.scale(loss * float("inf") if bad else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert penalty.steps == 1
    with pytest.raises(ConfigError, match=r"follow needs a torch.optim.Optimizer; got 3"):
        GradientPenalty(eps=0.1).follow(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="follows an optimizer already"):
        penalty.follow(optimizer)


def test_a_copy_that_would_stop_counting_says_so(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = GradientPenalty(eps=0.1, lazy=2)
    assert copy.deepcopy(penalty)(model, *batch(0)).penalty > 0
    other = pickle.loads(pickle.dumps(penalty.follow(optimizer)))
    with pytest.raises(ConfigError, match=r"follows no optimizer: call its follow\(optimizer\)"):
        other(model, *batch(0))
    other.follow(optimizer)
    optimizer.step()
    assert (penalty.steps, other.steps) == (1, 1)


def test_making_one_draws_nothing(model: nn.Module) -> None:
    before = torch.get_rng_state()
    GradientPenalty(eps=0.1, lazy=2)
    assert torch.equal(before, torch.get_rng_state())


def test_a_checkpoint_goes_on_counting(model: nn.Module) -> None:
    first = GradientPenalty(eps=0.1, lazy=3)
    for step in range(4):
        first(model, *batch(step))
    second = GradientPenalty(eps=0.1, lazy=3)
    second.load_state_dict(first.state_dict())
    assert repr(second) == "GradientPenalty(eps=0.1, lazy=3), 4 steps"
    assert [float(second(model, *batch(i)).penalty) > 0 for i in range(3)] == [False, False, True]
    for state in ({}, {"steps": -1}, {"steps": 1.5}):
        with pytest.raises(ConfigError):
            second.load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "either lam=.* or eps="),
        ({"eps": 0.1, "step": 3}, "counts its own steps; leave step= out"),
        ({"eps": 0.1, "lazy": 0}, "lazy must be at least 1"),
        ({"eps": 0.1, "threat": "l3"}, "threat must be one of"),
    ],
)
def test_bad_options_are_refused_when_it_is_made(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(gradreg.GradregError, match=sentence):
        GradientPenalty(**options)


def test_unknown_options_are_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match=r"There is no option 'lazyness' \(did you mean 'lazy'\?\)"):
        GradientPenalty(eps=0.1, lazyness=2)
