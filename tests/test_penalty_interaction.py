"""Images that move each other's losses, by whatever layer: a part of a batch alone would have other losses."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from gradreg import regularized_loss
from gradreg.losses import cross_entropy

X = torch.rand(16, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Y = torch.arange(16) % 4


class OwnNorm(nn.Module):
    """The arithmetic of nn.BatchNorm1d, written by hand."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return (x - self.running_mean) / (self.running_var + 1e-5).sqrt()
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(0), 0.1)
            self.running_var.lerp_(x.var(0), 0.1)
        return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()


class Attends(nn.Module):
    """Each image to its batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x + (x @ x.T).softmax(1) @ x


def network(*first: nn.Module) -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(*first, nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def step(model: nn.Module, **how: Any) -> dict[str, Tensor]:
    torch.manual_seed(3)
    out = regularized_loss(model, X, Y, **how)
    out.loss.backward()
    weights = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    buffers = {name: kept for name, kept in model.named_buffers() if "running" in name}
    return {"clean": out.clean, "penalty": out.penalty, "logits": out.logits, **weights, **buffers}


WAYS: list[dict[str, Any]] = [
    {"lam": 0.1, "fraction": 0.25, "step": 1},
    {"eps": 0.5, "fraction": 0.25, "step": 1, "graphs": 2},
    {"eps": 0.5, "fraction": 0.05, "step": 1},
    {"eps": 0.5, "h": 0.5, "second_step": 0.9},
    {"eps": 0.5, "h": 0.3, "second_step": 0.9, "graphs": 2},
    {"eps": 0.5, "h": 0.3, "second_step": 0.9, "fraction": 0.5, "step": 1},
]


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_statistics_written_by_hand_are_torch_s(how: dict[str, Any]) -> None:
    torch_s, own = network(nn.BatchNorm1d(12, affine=False)), network(OwnNorm(12))
    for _ in range(3):
        expected, found = step(torch_s, **how), step(own, **how)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(found[name], value, rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("bn", ["train", "frozen"])
@pytest.mark.parametrize(
    "layer", [Attends(), nn.BatchNorm1d(12, track_running_stats=False)], ids=["attention", "batch"]
)
def test_the_clean_loss_is_that_of_the_whole_batch(layer: nn.Module, bn: Any) -> None:
    """Batch normalisation without running statistics takes the batch's also where it is frozen."""
    model = network(layer)
    expected = cross_entropy(model(X), Y).mean().detach()
    for _ in range(2):
        out = regularized_loss(model, X, Y, lam=0.1, fraction=0.25, step=1, bn=bn)
        assert_close(out.clean, expected, rtol=1e-12, atol=0)
        assert_close(out.logits, model(X), rtol=1e-12, atol=0)


def test_a_criterion_may_mix_images_too() -> None:
    model = network()

    def contrast(logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(logits, y) + (logits @ logits.T).tanh().mean(1)

    expected = contrast(model(X), Y).mean().detach()
    with pytest.warns(UserWarning, match="criterion gives an image another loss"):
        out = regularized_loss(model, X, Y, lam=0.1, fraction=0.25, step=1, criterion=contrast)
    assert_close(out.clean, expected, rtol=1e-12, atol=0)


def flops(call: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@pytest.mark.parametrize(
    ("how", "layer", "forwards", "first"),
    [
        ({"fraction": 0.25, "step": 1}, nn.Identity, 0.25 * 6 + 0.75 * 3, 0.25 * (8 + 2)),
        ({"fraction": 0.25, "step": 1}, nn.Dropout, 0.25 * 6 + 0.75 * 3, 0.25 * (8 + 2)),
        ({"fraction": 0.25, "step": 1}, partial(OwnNorm, 64), 0.25 * 6 + 3, 0.25 * (8 + 2)),
        ({"second_step": 0.0}, nn.Identity, 6, 8 + 2),
        ({"second_step": 0.0}, nn.Dropout, 8, 8),
    ],
    ids=str,
)
def test_the_question_is_asked_once(
    how: dict[str, Any], layer: Callable[[], nn.Module], forwards: float, first: float
) -> None:
    """Masks are no interaction, though a part of the batch alone would draw others."""
    hidden = [nn.Linear(64, 64) if n % 2 else nn.Tanh() for n in range(12)]
    model = nn.Sequential(nn.Linear(12, 64), *hidden, layer(), nn.Linear(64, 4)).double()
    forward = flops(lambda: model(X))
    counts = [flops(lambda: regularized_loss(model, X, Y, eps=0.01, **how).backward()) / forward for _ in range(3)]
    assert counts[1] == counts[2] == pytest.approx(forwards, rel=0.05)
    assert counts[0] - counts[1] == pytest.approx(first, rel=0.05)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("layer", [nn.BatchNorm1d, OwnNorm])
def test_a_part_is_two_images_where_one_alone_has_no_statistics(layer: type[nn.Module], size: int) -> None:
    """The last batch of an epoch may be small, and torch refuses to normalise a batch of one."""
    model = network(layer(12))
    out = regularized_loss(model, X[:size], Y[:size], lam=0.1, fraction=0.05, step=1)
    out.loss.backward()
    assert (~out.slope.isnan()).sum() == 2
    assert out.loss.isfinite()
    alone = regularized_loss(network(), X[:size], Y[:size], lam=0.1, fraction=0.05, step=1)
    assert (~alone.slope.isnan()).sum() == 1


def test_frozen_statistics_of_single_images_are_used_and_not_moved() -> None:
    torch.manual_seed(0)
    norm = nn.InstanceNorm2d(3, track_running_stats=True, affine=True)
    model = nn.Sequential(norm, nn.Flatten(), nn.Linear(12, 4)).double()
    x = X.view(16, 3, 2, 2)
    assert norm.running_mean is not None
    model(x)
    before = norm.running_mean.clone()
    frozen = regularized_loss(model, x, Y, lam=0.1, bn="frozen")
    assert torch.equal(norm.running_mean, before)
    assert norm.training
    evaluated = regularized_loss(model.eval(), x, Y, lam=0.1)
    assert_close(frozen.penalty, evaluated.penalty)
    model.train()
    regularized_loss(model, x, Y, lam=0.1)
    assert not torch.equal(norm.running_mean, before)
