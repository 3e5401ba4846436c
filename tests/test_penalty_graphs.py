"""One graph at a time against two: the same gradients, by passes that are differentiated as soon as they can be."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from gradreg import ModelError, regularized_loss
from gradreg.norms import THREATS

Batch = tuple[Tensor, Tensor]
H_EACH = torch.linspace(0.004, 0.02, 7, dtype=torch.float64)


class Net(nn.Module):
    """With a weight that is used twice, one that is not trained, batch statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.drop, self.head = nn.BatchNorm2d(4), nn.Dropout(0.3), nn.Linear(4 * 16, 5)
        self.head.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.gelu(self.norm(self.first(x)))
        x = nn.functional.avg_pool2d(self.again(nn.functional.gelu(self.again(x))), 2)
        logits: Tensor = self.head(self.drop(x).flatten(1))
        return logits


@pytest.fixture
def net() -> Net:
    return Net().double()


def gradients(model: nn.Module, batch: Batch, **how: Any) -> tuple[Tensor, Tensor]:
    """All weight gradients in a row, and the slopes; every call starts from the same statistics and dropout masks."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.zero_grad()
    with torch.random.fork_rng():
        out = regularized_loss(model, *batch, **how)
        out.loss.backward()
    model.load_state_dict(before)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]), out.slope


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("threat", list(THREATS))
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"bn": "frozen"},
        {"h": H_EACH},
        {"h": torch.tensor(0.02)},
        {"fraction": 0.5, "step": 3},
        {"fraction": 0.5, "step": 3, "bn": "frozen"},
        {"fraction": 0.5, "step": 3, "bn": "frozen", "h": H_EACH},
        {"lazy": 2, "step": 4},
        {"eps": 0.01},
    ],
)
def test_unsquared_gradients_are_those_of_two_graphs(
    how: dict[str, Any], order: int, threat: str, net: Net, batch: Batch
) -> None:
    """The derivative of (ℓ(x + hd) − ℓ(x))/h is a sum, and it does not matter when its terms are computed."""
    how = {"eps": 0.3, "order": order, "threat": threat} | how
    one, slope = gradients(net, batch, **how)
    two, _ = gradients(net, batch, **how, graphs=2)
    assert (slope[~slope.isnan()] > 0).all()
    assert len(one) == sum(p.numel() for p in net.parameters() if p.requires_grad)
    assert distance(one, two) < 1e-11


def test_a_negative_slope_is_pushed_down_by_one_graph_and_up_by_two() -> None:
    """By hand: ℓ = sin(wx) at w = 1, x = 1.4 rises, but h = 2 looks behind the hill.

    One graph trains on the slope as it is, so that FGSM training stays FGSM training; two graphs on its absolute value.
    """
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    x = torch.tensor([[1.4]], dtype=torch.float64)
    here, there = x.cos() * x, (x + 2).cos() * (x + 2)
    for graphs, sign in ((1, 1), (2, -1)):
        model.zero_grad()
        out = regularized_loss(
            model, x, torch.tensor([0]), eps=0.3, h=2.0, graphs=graphs, criterion=lambda z, _: z.squeeze(1).sin()  # type: ignore[arg-type]
        )  # fmt: skip
        out.loss.backward()
        assert out.slope.item() < 0
        assert_close(out.penalty, 0.3 * out.slope.abs().mean())
        assert model.weight.grad is not None
        assert_close(model.weight.grad, here + sign * 0.3 * (there - here) / 2)


@pytest.mark.parametrize("threat", list(THREATS))
@pytest.mark.parametrize(("order", "expected"), [(1, 1.0), (2, 2.0)])
def test_squared_gradients_become_double_backprops(
    threat: str, order: int, expected: float, smooth_net: nn.Module, batch: Batch
) -> None:
    """‖∇ℓ‖∇s for s∇s: an error that falls as h, or h² for the central difference, and vanishes in the limit."""

    def error(h: float, graphs: int = 1) -> float:
        how: dict[str, Any] = {"lam": 2.0, "threat": threat, "scale": "dual", "h": h, "order": order}
        return distance(gradients(smooth_net, batch, **how, graphs=graphs)[0], exact)

    exact, _ = gradients(smooth_net, batch, lam=2.0, threat=threat, scale="dual", method="double-backprop")
    coarse, fine = (4e-4, 1e-4) if threat == "linf" else (0.02, 0.005)
    measured = torch.tensor(error(coarse) / error(fine)).log() / torch.tensor(coarse / fine).log()
    assert measured.item() == pytest.approx(expected, abs=0.1)
    smallest = {1: 1e-8, 2: 1e-6}[order]
    assert error(smallest) < 1e-6
    assert error(smallest, graphs=2) < 1e-6


def linear_loss(logits: Tensor, y: Tensor) -> Tensor:
    return logits.gather(1, y[:, None]).squeeze(1)


@pytest.mark.parametrize("strength", [{"lam": 1.0}, {"eps": 0.5}])
@pytest.mark.parametrize("h", [1e-3, 7.0])
def test_gradients_of_affine_models_are_exact_for_every_h(strength: dict[str, float], h: float, batch: Batch) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).double()
    exact, _ = gradients(model, batch, criterion=linear_loss, method="double-backprop", **strength)
    found, _ = gradients(model, batch, criterion=linear_loss, h=h, **strength)
    assert distance(found, exact) < 1e-10


@pytest.mark.parametrize("how", [{"lam": 1.0}, {"eps": 0.3}, {"lam": 1.0, "order": 2}, {"eps": 0.1, "h": H_EACH}])
def test_whoever_listens_to_a_weight_hears_its_whole_gradient_once(how: dict[str, Any], net: Net, batch: Batch) -> None:
    """Hooks fire once a weight and step, as optimizers in the backward pass and data-parallel training need."""
    expected, _ = gradients(net, batch, **how)
    net.zero_grad()
    weights = [p for p in net.parameters() if p.requires_grad]
    heard: list[Tensor] = []
    accumulated: list[Tensor] = []
    for weight in weights:
        weight.register_hook(heard.append)
        weight.register_post_accumulate_grad_hook(accumulated.append)
    with torch.random.fork_rng():
        out = regularized_loss(net, *batch, **how)
    assert not heard
    assert all(weight.grad is None for weight in weights)
    out.loss.backward()
    assert len(heard) == len(accumulated) == len(weights)
    assert (
        distance(torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None]), expected) < 1e-11
    )


@pytest.mark.parametrize("strength", [{"lam": 1.0}, {"eps": 0.3}])
def test_gradients_accumulate_and_scale_with_the_loss(strength: dict[str, float], net: Net, batch: Batch) -> None:
    """As micro-batches and loss scaling want it: two calls at a scale of 1024 are 2048 times one call."""
    net.eval()
    once, _ = gradients(net, batch, **strength)
    net.zero_grad()
    for _ in range(2):
        (1024 * regularized_loss(net, *batch, **strength).loss).backward()  # type: ignore[arg-type]
    total = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
    assert distance(total / 2048, once) < 1e-11


@pytest.mark.parametrize("how", [{"lam": 1.0}, {"eps": 0.3}, {"lam": 1.0, "order": 2}])
def test_weights_computed_before_the_step_keep_their_graph(how: dict[str, Any], batch: Batch) -> None:
    """As with cached parametrizations: both passes, and what the user adds to the loss, hang on the same graph."""
    found = []
    for graphs in (1, 2):
        base = torch.linspace(-1, 1, 192 * 5, dtype=torch.float64).view(192, 5).requires_grad_()
        weight = base.tanh()
        out = regularized_loss(lambda x, w=weight: x.flatten(1) @ w, *batch, graphs=graphs, h=1e-5, **how)  # type: ignore[misc]
        (out.loss + weight.square().sum()).backward()
        assert base.grad is not None
        found.append(base.grad)
    assert distance(found[0], found[1]) < 1e-4


def test_without_gradients_no_weight_gradient_is_computed(smooth_net: nn.Module, batch: Batch) -> None:
    """A forward, the input's gradient and another forward: three forwards' worth."""
    counts = []
    regularized_loss(smooth_net, *batch, eps=0.3)  # the first call tries whether the model can be believed
    with torch.no_grad():
        for call in (lambda: smooth_net(batch[0]), lambda: regularized_loss(smooth_net, *batch, eps=0.3)):
            with FlopCounterMode(display=False) as counter:
                call()
            counts.append(counter.get_total_flops())
    assert counts[1] == 3 * counts[0]


class Balanced(nn.Module):
    """Keeps a loss of its own, as a mixture of experts does for their load."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))
        self.load = torch.zeros(())
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        self.load, self.kept = found.square().mean(), [found]
        return found


@pytest.mark.parametrize("how", [{"lam": 0.1}, {"eps": 0.1}, {"eps": 0.1, "fraction": 0.5, "step": 1}], ids=str)
def test_a_loss_that_the_model_keeps_is_added_with_two_graphs_and_refused_with_one(how: dict[str, Any]) -> None:
    """Its graph is freed in the call, and torch would only say that this backward is the second one."""
    x, y = torch.rand(6, 12, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    model = Balanced()
    out = regularized_loss(model, x, y, **how)
    with pytest.raises(ModelError, match=r"keeps Balanced\.load of a forward .*: pass graphs=2"):
        (out.loss + model.load).backward()
    model = Balanced()
    regularized_loss(model, x, y, **how).loss.backward()  # what nobody asks for does no harm
    if "fraction" not in how:
        weight = model.layers.get_parameter("3.weight")
        model.zero_grad()
        alone = regularized_loss(model, x, y, graphs=2, **how)
        (alone.loss + model.load).backward()
        assert weight.grad is not None
        both = weight.grad.clone()
        model.zero_grad()
        regularized_loss(model, x, y, graphs=2, **how).loss.backward()
        model(x)
        model.load.backward()
        torch.testing.assert_close(both, weight.grad)
