"""bf16 keeps two digits of a loss, and a difference over h = 0.01 has its information in the fourth."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

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
