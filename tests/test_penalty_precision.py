"""bf16 keeps two digits of a loss, and a difference over h = 0.01 has its information in the fourth."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.testing import assert_close

import gradreg
from gradreg import PrecisionError, regularized_loss


@pytest.fixture
def net() -> nn.Sequential:
    layers = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.GELU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(256, 10)
    )
    nn.init.normal_(layers[5].weight, std=0.5)  # type: ignore[arg-type]
    return layers


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return torch.rand(32, 3, 16, 16), torch.randint(0, 10, (32,))


def error(measured: Tensor, reference: Tensor) -> float:
    return float(((measured.detach() - reference) / reference).abs().median())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_under_autocast_the_estimate_is_that_of_single_precision(
    dtype: torch.dtype, threat: str, net: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    reference = regularized_loss(net, *batch, threat=threat, lam=1.0)  # type: ignore[arg-type]
    with torch.autocast("cpu", dtype):
        out = regularized_loss(net, *batch, threat=threat, lam=1.0)  # type: ignore[arg-type]
        assert torch.is_autocast_enabled("cpu")
    out.loss.backward()
    assert error(out.slope, reference.slope) < 0.02
    assert error(out.slope, reference.grad_norm) < 0.02


def test_half_precision_images_are_moved_in_full_precision(net: nn.Sequential, batch: tuple[Tensor, Tensor]) -> None:
    """A bf16 pixel near 1 moves in steps of 1/256, and h = 0.01 in l2 is far less than that a pixel."""
    x = batch[0].bfloat16()
    reference = regularized_loss(net, x.float(), batch[1], lam=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        out = regularized_loss(net, x, batch[1], lam=1.0)
    assert error(out.slope, reference.slope) < 1e-4


def test_without_the_guard_bf16_would_be_wrong(net: nn.Sequential, batch: tuple[Tensor, Tensor]) -> None:
    """What every other library would return: the guard has something to guard against."""
    reference = regularized_loss(net, *batch, lam=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(batch[0])
    x = batch[0].clone().requires_grad_()
    (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(x), batch[1], reduction="sum"), x)
    d = g / g.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    with torch.autocast("cpu", torch.bfloat16):
        ahead = net(batch[0] + 0.01 * d)
    losses = [nn.functional.cross_entropy(out.float(), batch[1], reduction="none") for out in (ahead, logits)]
    assert error((losses[0] - losses[1]) / 0.01, reference.slope) > 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_refused_below_a_safe_h_and_good_above_it(
    dtype: torch.dtype, net: nn.Sequential, batch: tuple[Tensor, Tensor]
) -> None:
    with torch.autocast("cpu", dtype):
        with pytest.raises(PrecisionError, match=r"rounding makes up about \d+%.*use h ≥ .*autocast='off'") as caught:
            regularized_loss(net, *batch, lam=1.0, h=1e-3, autocast="keep")
        safe = float(str(caught.value).split("h ≥ ")[1].split(",")[0]) * 1.05
        low = regularized_loss(net, *batch, lam=1.0, h=safe, autocast="keep")
    assert low.logits.dtype == dtype
    full = regularized_loss(net, *batch, lam=1.0, h=safe)
    assert error(low.slope, full.slope) < 0.02


def test_a_model_in_half_precision_is_refused(net: nn.Sequential, batch: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(PrecisionError, match=r"In bfloat16, .*keep the weights in float32"):
        regularized_loss(net.bfloat16(), batch[0].bfloat16(), batch[1], lam=1.0)


@pytest.mark.parametrize("strength", [{"lam": 1.0}, {"eps": 0.3}, {"lam": 1.0, "order": 2}])
def test_under_autocast_the_weight_gradients_are_those_of_single_precision(
    strength: dict[str, Any], batch: tuple[Tensor, Tensor]
) -> None:
    """Passes that are differentiated inside the call would run their matrix products in bf16, and 1/h would show it."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 32), nn.GELU(), nn.Linear(32, 10))
    regularized_loss(model, *batch, **strength).loss.backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = regularized_loss(model, *batch, **strength)
    out.loss.backward()
    for weight, reference in zip(model.parameters(), expected, strict=True):
        assert_close(weight.grad, reference)


def test_a_mean_of_losses_may_stay_in_bf16(batch: tuple[Tensor, Tensor]) -> None:
    """With eps = h the loss is ℓ(x + hd) alone: equal to a step of the gradient's sign and a plain bf16 loss there."""
    x, y = batch
    h = 8 / 255
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 32), nn.GELU(), nn.Linear(32, 10))
    with torch.autocast("cpu", torch.bfloat16):
        at = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(model(at), y, reduction="sum"), at)
        loss = nn.functional.cross_entropy(model(x + h * g.sign()), y)
    loss.backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = regularized_loss(model, x, y, threat="linf", eps=h, h=h, autocast="keep")
    out.loss.backward()
    assert_close(out.loss.detach(), loss.detach())
    for weight, reference in zip(model.parameters(), expected, strict=True):
        assert_close(weight.grad, reference, rtol=1e-6, atol=1e-7)


def test_a_network_that_is_sure_of_most_images_may_stay_in_bf16(batch: tuple[Tensor, Tensor]) -> None:
    """Large logits, and losses near 0 of most images: rounding is much of their difference, which is near 0 too."""
    x, _ = batch
    linear = nn.Linear(768, 10)
    nn.init.normal_(linear.weight, std=2.0)
    model = nn.Sequential(nn.Flatten(), linear)
    y = model(x).argmax(1)
    y[20:] = (y[20:] + 1) % 10
    options: dict[str, Any] = {"threat": "linf", "eps": 8 / 255, "h": 8 / 255}
    with torch.autocast("cpu", torch.bfloat16):
        out = regularized_loss(model, x, y, autocast="keep", **options)
    assert_close(out.loss, regularized_loss(model, x, y, **options).loss, rtol=0.02, atol=0)


def test_what_magnifies_a_difference_stays_refused_in_bf16(net: nn.Sequential, batch: tuple[Tensor, Tensor]) -> None:
    options: dict[str, Any] = {"threat": "l2", "h": 0.02, "autocast": "keep"}
    with torch.autocast("cpu", torch.bfloat16):
        regularized_loss(net, *batch, eps=0.02, **options)
        magnifying: list[dict[str, Any]] = [{"eps": 0.04}, {"lam": 0.02}, {"eps": 0.01, "lazy": 4, "step": 0}]
        for magnified in magnifying:
            with pytest.raises(PrecisionError):
                regularized_loss(net, *batch, **(options | magnified))
        with pytest.raises(PrecisionError):  # the difference drowns in its rounding
            regularized_loss(net, *batch, threat="l2", eps=1e-4, h=1e-4, autocast="keep")


class Rounded(nn.Module):
    def __init__(self, how: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        return self.how(x)


def eight_bits(x: Tensor) -> Tensor:
    """With the gradient of the identity."""
    return x + ((x * 255).round() / 255 - x).detach()


INSIDE: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "bf16 activations": (2, lambda z: z.bfloat16().float()),
    "8-bit images": (0, eight_bits),
    "float16 images": (0, lambda z: z.half().float()),
}
_SEEDS = 8


def small(seed: int, activation: type[nn.Module]) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), activation(), nn.Flatten(), nn.Linear(384, 5))
    return layers, torch.rand(8, 3, 8, 8), torch.arange(8) % 5


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("threat", ["l2", "linf", "l1"])
@pytest.mark.parametrize(
    ("inside", "h"), [("bf16 activations", 0.01), ("8-bit images", 0.01), ("float16 images", 1e-3)], ids=str
)
def test_low_precision_inside_is_refused_or_does_no_harm(
    inside: str, h: float, threat: Any, activation: type[nn.Module]
) -> None:
    """Near points are rounded alike and hide most of the error: the slopes were 9 % to 24 % off without a word."""
    place, how = INSIDE[inside]
    accepted = 0
    for seed in range(_SEEDS):
        model, x, y = small(seed, activation)
        low = deepcopy(model).insert(place, Rounded(how))
        try:
            slope = regularized_loss(low, x, y, threat=threat, lam=0.1, h=h).slope
        except PrecisionError:
            continue
        exact = regularized_loss(model, x, y, threat=threat, lam=0.1, h=h).slope
        accepted += bool((slope - exact).square().mean().sqrt() > 0.05 * exact.mean())
    assert accepted <= 1


def batch_normed(activation: type[nn.Module]) -> nn.Sequential:
    blocks: list[nn.Module] = []
    for channels in (3, 16, 16, 16, 16):
        blocks += [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), activation()]
    return nn.Sequential(*blocks, nn.AvgPool2d(8), nn.Flatten(), nn.Linear(256, 10))


ORDINARY: dict[str, Callable[[], nn.Module]] = {
    "plain ReLU": lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)
    ),
    "normed ReLU": lambda: batch_normed(nn.ReLU),
    "normed GELU": lambda: batch_normed(nn.GELU),
    "trained": lambda: gradreg.load("cifar10-linf"),
}
USUAL: list[dict[str, Any]] = [
    {"threat": "l2", "lam": 1.0},
    {"threat": "l2", "eps": 0.5},
    {"threat": "linf", "lam": 1.0},
    {"threat": "linf", "eps": 8 / 255},
    {"threat": "linf", "eps": 16 / 255, "h": 16 / 255},
    {"threat": "linf", "eps": 16 / 255, "h": 16 / 255, "noise": 16 / 255},
    {"threat": "l1", "lam": 1.0},
    {"threat": "l1", "eps": 12.0},
]


@pytest.mark.parametrize("name", ORDINARY)
def test_single_precision_is_far_from_being_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Curvature and kinks are no rounding: not even at half of the tolerance."""
    monkeypatch.setattr("gradreg.penalty.trial._MEASURED_TOLERANCE", 0.025)
    monkeypatch.setattr("gradreg.penalty.trial._TOLERANCE_OF_MEANS", 0.025)
    torch.manual_seed(0)
    model = ORDINARY[name]()
    smooth = interpolate(torch.rand(8, 3, 6, 6), size=(32, 32), mode="bicubic").clamp(0, 1)
    for x in (smooth, torch.rand(8, 3, 32, 32)):
        with torch.no_grad():
            right = model(x).argmax(1)
        for options in USUAL:
            for y in (right, torch.arange(8)):
                regularized_loss(deepcopy(model), x, y, **options)


def test_the_trial_draws_nothing_and_bears_images_of_one_pixel() -> None:
    model, x, y = nn.Linear(1, 3), torch.rand(4, 1), torch.tensor([0, 1, 2, 0])
    before = torch.get_rng_state()
    for images in (x, torch.zeros_like(x)):
        out = regularized_loss(deepcopy(model), images, y, lam=1.0)
        assert_close(out.slope, out.grad_norm, rtol=0.02, atol=1e-3)
    assert torch.equal(before, torch.get_rng_state())
