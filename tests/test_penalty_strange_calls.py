"""Calls that went wrong in silence or deep inside of torch: what is right, or one sentence."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.testing import assert_close

import gradreg
from gradreg import ConfigError, DataError, GradientPenalty, ModelError, regularized_loss
from gradreg.losses import cross_entropy

X = torch.rand(10, 12, generator=torch.Generator().manual_seed(1))
Y = torch.arange(10) % 4


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4))


def test_images_and_noise_with_a_graph_are_refused() -> None:
    """What they were computed from would get no gradient, and no word."""
    scale = torch.ones((), requires_grad=True)
    made: dict[str, dict[str, Any]] = {"x": {"x": X * scale}, "noise": {"noise": X * scale}}
    for name, given in made.items():
        arguments: dict[str, Any] = {"x": X, "y": Y, "lam": 0.1} | given
        with pytest.raises(
            DataError, match=rf"^{name} must come without a graph.*MulBackward0: pass {name}\.detach\(\)"
        ):
            regularized_loss(network(), **arguments)
        with torch.no_grad():
            regularized_loss(network(), **arguments)
        assert scale.grad is None


def test_images_that_could_have_a_gradient_are_taken() -> None:
    """As loops for double backpropagation leave them."""
    expected, x = regularized_loss(network(), X, Y, lam=0.1), X.clone().requires_grad_()
    out = regularized_loss(network(), x, Y, lam=0.1)
    out.loss.backward()
    assert_close(out.penalty, expected.penalty)
    assert x.grad is None


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.complex64])
def test_a_criterion_of_numbers_without_gradients_is_refused(kind: torch.dtype) -> None:
    with pytest.raises(ConfigError, match=rf"criterion must return losses of a floating dtype.*got {kind}"):
        regularized_loss(network(), X, Y, lam=0.1, criterion=lambda z, y: (z.argmax(1) != y).to(kind))


def test_transforms_of_weights_are_refused() -> None:
    net = network()
    weights = {name: weight.detach() for name, weight in net.named_parameters()}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return regularized_loss(lambda z: functional_call(net, weights, (z,)), X, Y, lam=0.1).loss

    many = {name: torch.stack([weight, 2 * weight]) for name, weight in weights.items()}
    calls: list[tuple[Callable[..., Any], Any]] = [
        (torch.func.grad(loss), weights),
        (torch.func.vmap(loss), many),
    ]
    for call, given in calls:
        with pytest.raises(ConfigError, match=r"torch\.func \(grad, vmap, jvp\).*call it outside"):
            call(given)


def test_a_model_may_use_transforms_inside() -> None:
    nets = [network(), network()]
    stacked, buffers = torch.func.stack_module_state(nets)

    def ensemble(x: Tensor) -> Tensor:
        each = torch.func.vmap(lambda weights, kept: functional_call(nets[0], (weights, kept), (x,)))(stacked, buffers)
        mean: Tensor = each.mean(0)
        return mean

    found, expected = (regularized_loss(model, X, Y, lam=0.1) for model in (ensemble, nets[0]))
    assert_close(found.penalty, expected.penalty, rtol=1e-3, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's compiler looks at the loss's
@pytest.mark.parametrize("as_object", [False, True])
def test_a_compiled_step_has_the_gradients_of_a_plain_one(as_object: bool) -> None:
    net, seen = network(), list[int]()

    def watched(graph: torch.fx.GraphModule, _: Any) -> Any:
        seen.append(len(graph.graph.nodes))
        return graph

    penalty = GradientPenalty(lam=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        out = penalty(net, x, y) if as_object else regularized_loss(net, x, y, lam=0.1)
        out.loss.backward()
        return out.loss * 2 / 2

    step(X, Y)
    expected = [weight.grad.clone() for weight in net.parameters() if weight.grad is not None]
    net.zero_grad()
    torch.compile(step, backend=watched)(X, Y)
    assert_close([weight.grad for weight in net.parameters()], expected)
    regularized_loss(torch.compile(net, backend=watched), X, Y, lam=0.1)
    assert max(seen) > 5, "a compiled model stays compiled"


class NoSlope(nn.Module):
    """A loss that is finite where its gradient is not: the branch that is not taken has an infinite slope at 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.net(torch.where(x > 0.5, (x - 0.5).abs().sqrt(), 0.0))
        return found


@pytest.mark.parametrize("how", [{"lam": 0.1}, {"eps": 0.1}, {"eps": 0.1, "threat": "linf"}, {"lam": 0.1, "graphs": 2}])
def test_gradients_that_are_not_finite_are_refused_at_the_first_step(how: dict[str, Any]) -> None:
    x = X.clone()
    x[[3, 7], 0] = 0.5
    with pytest.raises(ModelError, match=r"gradient .* not finite for 2 of 10 images, the first of them image 3"):
        regularized_loss(NoSlope(), x, Y, **how)


def test_losses_that_are_not_finite_are_another_matter() -> None:
    """A loop sees them by itself, and loss scaling lives by them."""
    net = network()
    with torch.no_grad():
        next(net.parameters())[0, 0] = torch.nan
    assert regularized_loss(net, X, Y, lam=0.1).loss.isnan()


def test_weights_of_inference_mode_are_named() -> None:
    with torch.inference_mode():
        net = network()
    with pytest.raises(ModelError, match=r"weights or buffers from torch\.inference_mode\(\)"):
        regularized_loss(net, X, Y, lam=0.1)


class Late:
    @property
    def logits(self) -> Tensor:
        raise RuntimeError("not computed yet")


ODD: list[tuple[Callable[[Tensor], Any], str]] = [
    (lambda z: torch.nested.nested_tensor(list(z), layout=torch.jagged), "logits of shape .*got torch.float32, nested"),
    (lambda z: Late(), r"Reading \.logits of what the model returned, a Late, failed: not computed yet"),
]


@pytest.mark.parametrize(("form", "sentence"), ODD, ids=["nested", "late"])
def test_odd_outputs_get_a_sentence(form: Callable[[Tensor], Any], sentence: str) -> None:
    net = network().eval()
    for call in (
        lambda: regularized_loss(lambda x: form(net(x)), X, Y, lam=0.1),
        lambda: gradreg.attack(lambda x: form(net(x)), X, Y, attacks="quick"),
    ):
        with pytest.raises(ModelError, match=sentence):
            call()


@pytest.mark.parametrize("kind", ["meta", "float8"])
def test_logits_that_cannot_be_compared_get_a_sentence(kind: str) -> None:
    net = network().eval()
    to: Any = "meta" if kind == "meta" else torch.float8_e4m3fn
    with pytest.raises(
        ModelError, match=r"must return logits that can be computed with; got logits o[nf] .*(meta|float8)"
    ):
        gradreg.attack(lambda x: net(x).to(to), X, Y, attacks="quick")


@pytest.mark.parametrize("how", [{"lam": 0.1}, {"eps": 0.1}, {"lam": 0.1, "graphs": 2}], ids=str)
@pytest.mark.parametrize(
    "model", [nn.Identity(), nn.Flatten(), lambda x: x[:, :4]], ids=["identity", "flatten", "view"]
)
def test_a_criterion_may_write_into_the_images_that_a_model_returns(model: Any, how: dict[str, Any]) -> None:
    before = X.clone()
    y = Y.clone()
    found = regularized_loss(model, X, y, **how, criterion=lambda z, y: cross_entropy(z.mul_(2.0), y))
    expected = regularized_loss(model, X, y, **how, criterion=lambda z, y: cross_entropy(2.0 * z, y))
    assert_close(found.penalty, expected.penalty)
    assert torch.equal(X, before)
