"""Weights that are not leaves, and derivatives of the gradient: as double backprop has them, or a sentence."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, parametrize
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from gradreg import ConfigError, ModelError, regularized_loss

X = torch.rand(10, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Y = torch.arange(10) % 4
FRACTION: dict[str, Any] = {"fraction": 0.5, "step": 1}
WAYS: list[dict[str, Any]] = [
    {"lam": 0.3},
    {"lam": 0.3, "order": 2},
    {"lam": 0.3, "h": torch.full((10,), 1e-6, dtype=torch.float64)},
    {"eps": 0.5},
    {"eps": 0.5, **FRACTION},
    {"lam": 0.3, **FRACTION},
]


def network(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 8), *more, nn.Tanh(), nn.Linear(8, 4)).double()


def fast_weights(net: nn.Module) -> tuple[dict[str, Tensor], Callable[[Tensor], Tensor]]:
    """Computed from the weights, as by a step of meta-learning, and the network that has them."""
    fast = {name: (1.1 * weight).sin() for name, weight in net.named_parameters()}
    return fast, lambda z: functional_call(net, fast, (z,))


def flat(gradients: Any) -> Tensor:
    return torch.cat([each.flatten() for each in gradients])


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_the_gradient_at_computed_weights_is_double_backprop_s(how: dict[str, Any]) -> None:
    """With one graph they had heard of the last pass alone, whose coefficient is 1/h: 340 times too much, or more."""
    net = network()
    found = []
    for method in (
        {"h": 1e-6} | how,
        {key: how[key] for key in how if key not in ("h", "order")} | {"method": "double-backprop"},
    ):
        fast, model = fast_weights(net)
        loss = regularized_loss(model, X, Y, **method).loss
        found.append(
            (
                flat(torch.autograd.grad(loss, list(fast.values()), retain_graph=True)),
                flat(torch.autograd.grad(loss, list(net.parameters()))),
            )
        )
    for one, exact in zip(*found, strict=True):
        assert_close(one, exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "how",
    [
        {"eps": 0.1, "h": 0.1},
        {"eps": 0.1, "h": 0.1, "second_step": 0.999},
        {"eps": 0.2, "h": 0.1, "second_step": 0.999},
    ],
)
def test_long_steps_have_the_gradient_of_two_graphs(how: dict[str, Any]) -> None:
    net = network()
    found = []
    for graphs in (1, 2):
        fast, model = fast_weights(net)
        out = regularized_loss(model, X, Y, **how, graphs=graphs)
        found.append(flat(torch.autograd.grad(out.loss, list(fast.values()))))
    assert_close(found[0], found[1], rtol=1e-7, atol=1e-9)


def test_a_computed_weight_that_keeps_its_gradient_hears_it_once() -> None:
    net, heard = network(), list[Tensor]()
    fast, model = fast_weights(net)
    fast["0.weight"].retain_grad()
    fast["0.weight"].register_hook(heard.append)
    out = regularized_loss(model, X, Y, eps=0.5, h=1e-6)
    assert not heard
    out.loss.backward()
    assert len(heard) == 1
    assert fast["0.weight"].grad is not None
    fast, model = fast_weights(net)
    exact = regularized_loss(model, X, Y, eps=0.5, method="double-backprop").loss
    assert_close(heard[0], torch.autograd.grad(exact, fast["0.weight"])[0], rtol=1e-4, atol=1e-7)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = network(nn.BatchNorm1d(8)), nn.Linear(4, 4).double()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(checkpoint(self.block, x, use_reentrant=False))
        return found


def test_computed_weights_of_a_checkpointed_model_with_state_are_refused() -> None:
    net = Checkpointed()
    _, model = fast_weights(net)
    with pytest.raises(ModelError, match=r"^Weights computed before the call leave activation checkpointing to"):
        regularized_loss(model, X, Y, lam=0.1)


@pytest.mark.parametrize("how", [*WAYS, {"lam": 0.3, "graphs": 2}, {"eps": 0.5, "output_slope": 1.0}], ids=str)
def test_second_derivatives_are_refused(how: dict[str, Any]) -> None:
    """A Hessian-vector product of it was -3095.9 instead of -4.79: the known parts counted as constants."""
    net = network()
    with pytest.raises(ConfigError, match=r"first derivatives only.*method='double-backprop'"):
        torch.autograd.grad(regularized_loss(net, X, Y, **how).loss, list(net.parameters()), create_graph=True)


def test_second_derivatives_of_double_backprop_and_of_plain_steps_are_there() -> None:
    net = network()
    for how in ({"method": "double-backprop"}, {"lazy": 2, "step": 1}):
        loss = regularized_loss(net, X, Y, lam=0.1, **how).loss
        gradient = flat(torch.autograd.grad(loss, list(net.parameters()), create_graph=True))
        assert flat(torch.autograd.grad(gradient.square().sum(), list(net.parameters()))).norm() > 0


@pytest.mark.parametrize("how", [*WAYS, {"eps": 0.5, "h": 0.1, "second_step": 0.9}, {"eps": 0.1, "h": 0.1}], ids=str)
@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_cached_parametrizations_have_the_gradients_of_fresh_ones(
    norm: Callable[..., nn.Module], how: dict[str, Any]
) -> None:
    found = []
    for cached in (False, True):
        net = network()
        norm(net[0])
        if norm is parametrizations.spectral_norm:
            net.eval()  # in train mode its power iteration runs once per forward, or once for all
        if cached:
            with parametrize.cached():
                regularized_loss(net, X, Y, **how).loss.backward()
        else:
            regularized_loss(net, X, Y, **how).loss.backward()
        found.append(flat(weight.grad for weight in net.parameters() if weight.grad is not None))
    assert_close(found[1], found[0], rtol=1e-6, atol=1e-8)


class OwnCache(nn.Module):
    """Its effective weight is computed when it is first needed, and kept where nobody looks."""

    def __init__(self, effective: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.head = nn.Linear(12, 8).double(), nn.Linear(8, 4).double()
        kept: dict[str, Tensor] = {}

        def weight() -> Tensor:
            if not kept:
                kept["weight"] = effective(self.hidden.weight)
            return kept["weight"]

        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(nn.functional.linear(x, self.weight(), self.hidden.bias).tanh())
        return found


@pytest.mark.parametrize("how", WAYS[:4], ids=str)
def test_a_kept_weight_is_refused_in_the_call_and_taken_with_two_graphs(how: dict[str, Any]) -> None:
    """It was torch's "Trying to backward through the graph a second time", in the backward of the loss."""
    with pytest.raises(ModelError, match=r"keeps a computed weight.*compute it anew.*graphs=2"):
        regularized_loss(OwnCache(), X, Y, **how)
    regularized_loss(OwnCache(), X, Y, **how, graphs=2).loss.backward()


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_a_kept_view_of_a_weight_is_taken(how: dict[str, Any]) -> None:
    """Its backward needs nothing that could be freed; sharded training keeps such views."""
    found = []
    for graphs in (1, 2):
        net = OwnCache(lambda weight: weight.view(-1)[:96].view(8, 12))
        regularized_loss(net, X, Y, **{"h": 1e-6} | how, graphs=graphs).loss.backward()
        found.append(flat(weight.grad for weight in net.parameters() if weight.grad is not None))
    assert_close(found[0], found[1], rtol=1e-4, atol=1e-7)


def test_a_backward_of_the_object_reaches_computed_weights() -> None:
    net = network()
    fast, model = fast_weights(net)
    fast["0.weight"].retain_grad()
    regularized_loss(model, X, Y, eps=0.5, h=1e-6).backward()
    again, model = fast_weights(net)
    exact = regularized_loss(model, X, Y, eps=0.5, method="double-backprop").loss
    assert fast["0.weight"].grad is not None
    assert_close(fast["0.weight"].grad, torch.autograd.grad(exact, again["0.weight"])[0], rtol=1e-4, atol=1e-7)
