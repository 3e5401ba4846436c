"""Digits, and small honest networks on them to be disguised; trained once a session."""

from functools import cache

import torch
from torch import Tensor, nn

from bench.digits import EPS, trained
from gradreg.data import Images, load
from gradreg.diagnosis.broken import broken_models

# The small digits network is slow, so the disguises are put on a perceptron; it is as easily masked.
RADIUS = 0.1


@cache
def digits(split: str = "test") -> tuple[Tensor, Tensor]:
    images = getattr(load("mnist5k"), split)
    assert isinstance(images, Images)
    return images.floats(), images.labels


def some_digits(count: int = 40) -> tuple[Tensor, Tensor]:
    x, y = digits()
    return x[:count], y[:count]


@cache
def perceptron() -> nn.Module:
    return _fitted(nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.GELU(), nn.Linear(32, 10)))


@cache
def linear() -> nn.Module:
    return _fitted(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))


@cache
def network(eps: float = 0.0) -> nn.Module:
    """The small digits network, plain or regularised, after one epoch on some of the digits."""
    images = load("mnist5k").train
    assert isinstance(images, Images)
    return trained(images.subset(slice(1500)), eps, epochs=1)


def honest(name: str) -> nn.Module:
    if name in ("undefended", "regularised"):
        return network(EPS if name == "regularised" else 0.0)
    return linear() if name == "linear" else perceptron()


def masked(name: str) -> tuple[nn.Module, str]:
    """A disguise of the perceptron, and the code that it must raise."""
    return broken_models(perceptron())[name]


def _fitted(model: nn.Module) -> nn.Module:
    x, y = digits("train")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.requires_grad_(True).eval()
