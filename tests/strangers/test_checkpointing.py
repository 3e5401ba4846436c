"""Activation checkpointing: parts of a forward run again during the backward, and must find what they found then."""

import copy
from typing import Any

import pytest
import torch
from stateful import MovingAverage
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from gradreg import ModelError, attack, regularized_loss
from gradreg.objectives import Adversarial
from gradreg.objectives.base import Draws, Moment

X = torch.rand(6, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
Y = torch.arange(6) % 4


class Blocks(nn.Module):
    """Two blocks and a head; `reentrant`: how the blocks are checkpointed, None for not at all."""

    def __init__(self, reentrant: bool | None, norm: type[nn.Module]) -> None:
        super().__init__()
        self.reentrant = [reentrant]
        self.first = nn.Sequential(spectral_norm(nn.Conv2d(3, 4, 3, padding=1)), norm(4), nn.GELU(), nn.Dropout(0.2))
        self.second = nn.Sequential(MovingScale(), nn.Conv2d(4, 4, 3, padding=1), norm(4), nn.GELU(), nn.Flatten())
        self.head = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        (reentrant,) = self.reentrant
        for block in (self.first, self.second):
            x = block(x) if reentrant is None else checkpoint(block, x, use_reentrant=reentrant)
        logits: Tensor = self.head(x)
        return logits


class MovingScale(nn.Module):
    """A buffer that falls with every call."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.scale.mul_(0.9)
        return x * self.scale


def pair(reentrant: bool, norm: type[nn.Module] = nn.BatchNorm2d) -> tuple[Blocks, Blocks]:
    plain = Blocks(None, norm).double()
    odd = copy.deepcopy(plain)
    odd.reentrant = [reentrant]
    return plain, odd


WAYS: list[dict[str, Any]] = [
    {"lam": 1.0},
    {"eps": 0.1},
    {"lam": 1.0, "order": 2},
    {"lam": 1.0, "h": torch.full((6,), 0.01, dtype=torch.float64)},
    {"lam": 1.0, "bn": "frozen"},
    {"lam": 1.0, "fraction": 0.5, "step": 1},
    {"eps": 0.1, "fraction": 0.5, "step": 1, "bn": "frozen"},
    {"lam": 1.0, "lazy": 2, "step": 1, "bn": "frozen"},
]


@pytest.mark.parametrize(
    ("norm", "how"),
    [*((nn.BatchNorm2d, how) for how in WAYS), *((nn.InstanceNorm2d, how) for how in WAYS[:-1])],
    ids=str,
)
def test_gradients_and_state_are_those_without_checkpointing(how: dict[str, Any], norm: type[nn.Module]) -> None:
    plain, odd = pair(False, norm)
    for _ in range(3):
        for model in (plain, odd):
            torch.manual_seed(1)
            regularized_loss(model, X, Y, **how).loss.backward()
    for found, expected in zip(odd.parameters(), plain.parameters(), strict=True):
        assert_close(found.grad, expected.grad)
    for (name, found), expected in zip(odd.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(found, expected), name


def test_two_graphs_are_refused_where_state_would_move_again() -> None:
    _, odd = pair(False)
    with pytest.raises(ModelError, match="use graphs=1"):
        regularized_loss(odd, X, Y, lam=1.0, graphs=2)
    stateless = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.GELU(), nn.Linear(8, 4)).double()
    again = copy.deepcopy(stateless)
    checkpointed = lambda x: again[2:](checkpoint(again[:2], x, use_reentrant=False))  # noqa: E731
    for model in (stateless, checkpointed):
        regularized_loss(model, X, Y, lam=1.0, graphs=2).loss.backward()
    assert_close([p.grad for p in again.parameters()], [p.grad for p in stateless.parameters()])


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_the_reentrant_kind_is_one_sentence() -> None:
    _, odd = pair(True)
    sentence = r"reentrant activation checkpointing.*pass use_reentrant=False"
    with pytest.raises(ModelError, match=sentence):
        regularized_loss(odd, X, Y, lam=1.0)
    layer = nn.Linear(48, 4).double()
    with pytest.raises(ModelError, match=sentence):
        attack(lambda x: checkpoint(layer, x.flatten(1), use_reentrant=True), X, layer(X.flatten(1)).argmax(1))


def test_adversarial_training_on_a_checkpointed_model() -> None:
    plain, odd = pair(False)
    moment = Moment(0, 0.0, Draws((1,), 6, slice(0, 6)))
    for model in (plain, odd):
        torch.manual_seed(1)
        Adversarial(eps=0.1, steps=2)(model, X, Y, moment)
    for (name, found), expected in zip(odd.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(found, expected), name


def test_a_graph_keeps_the_buffer_that_it_saved() -> None:
    """The moving average is written to and multiplied by in the same pass; both graphs need their own values of it."""
    model, twin = (MovingAverage().double() for _ in range(2))
    twin.load_state_dict(model.state_dict())
    regularized_loss(model, X, Y, lam=1.0, h=1e-3).loss.backward()
    regularized_loss(twin, X, Y, lam=1.0, h=1e-3, graphs=2).loss.backward()
    assert_close([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()], rtol=1e-2, atol=1e-3)
