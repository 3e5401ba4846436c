"""Activations: the closed form of c2relu, and derivatives that exist where they are claimed to."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.testing import assert_close

from gradreg.errors import ModelError
from gradreg.models import activation
from gradreg.models.activations import ACTIVATIONS, c2relu

SMOOTH = [name for name in ACTIVATIONS if name != "relu"]


def derivatives(name: str, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(activation(name)()(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first.detach(), second


def test_c2relu_is_the_papers_maximum() -> None:
    x = torch.linspace(-3, 3, 6001, dtype=torch.float64)
    z = F.relu(x + 0.5)
    assert_close(c2relu(x), torch.maximum(z**3 - z**4 / 2, F.relu(x)))


def test_c2relu_values_and_derivatives_at_the_joints() -> None:
    x = torch.tensor([-0.5, 0.0, 0.5], dtype=torch.float64)
    first, second = derivatives("c2relu", x)
    assert_close(c2relu(x), torch.tensor([0, 3 / 32, 0.5], dtype=torch.float64))
    assert_close(first, torch.tensor([0, 0.5, 1], dtype=torch.float64))
    assert_close(second, torch.tensor([0, 1.5, 0], dtype=torch.float64))


def test_c2relu_is_exactly_relu_away_from_zero() -> None:
    x = torch.cat([torch.linspace(-40, -0.5, 500), torch.linspace(0.5, 40, 500)])
    assert torch.equal(c2relu(x), F.relu(x))


def test_c2relu_leaves_its_argument_alone() -> None:
    x = torch.linspace(-2, 2, 41)
    before = x.clone()
    c2relu(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_no_activation_writes_into_its_argument_or_gives_nan(name: str) -> None:
    x = torch.tensor([-1e9, -1e4, -30.0, -0.5, -0.0, 0.0, 0.5, 30.0, 1e4, 1e9])
    before = x.clone()
    value = activation(name)()(x)
    first, second = derivatives(name, x)
    assert torch.equal(x, before)
    assert value.isfinite().all()
    assert first.isfinite().all()
    assert second.isfinite().all()


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_agree_with_differences(name: str) -> None:
    x = torch.linspace(-1.7, 1.9, 23, dtype=torch.float64, requires_grad=True)
    assert gradcheck(activation(name)(), (x,))
    assert gradgradcheck(activation(name)(), (x,))


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivative_is_continuous(name: str) -> None:
    """A jump would show as a step that does not shrink with the grid; ReLU'' has one at 0, ELU'' another."""
    _, second = derivatives(name, torch.linspace(-3, 3, 60001, dtype=torch.float64))
    assert second.diff().abs().max() < 2e-3


def test_softplus_is_close_to_relu() -> None:
    x = torch.linspace(-10, 10, 2001, dtype=torch.float64)
    softplus = activation("softplus")()
    _, second = derivatives("softplus", x)
    assert_close((softplus(x) - F.relu(x)).max().item(), math.log(2) / 8)
    assert_close(second.max().item(), 2.0)


def test_each_call_makes_a_new_layer() -> None:
    make = activation("gelu")
    assert make() is not make()


@pytest.mark.parametrize(("wrong", "right"), [("ReLU", "relu"), ("sillu", "silu"), ("c2_relu", "c2relu")])
def test_unknown_activation_names_the_nearest(wrong: str, right: str) -> None:
    expected = (
        f"There is no activation '{wrong}' (did you mean '{right}'?): choose one of relu, c2relu, gelu, silu, softplus."
    )
    with pytest.raises(ModelError) as caught:
        activation(wrong)
    assert str(caught.value) == expected
