"""The finite-difference penalty against what it stands for: double backprop, and models solved by hand."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg import regularized_loss
from gradreg.losses import cross_entropy
from gradreg.norms import THREATS, Threat, threat

Batch = tuple[Tensor, Tensor]
NAMES = list(THREATS)


def input_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(model(x), y).sum(), x)
    return gradient


def weight_gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("order", "slope"), [(1, 1.0), (2, 2.0)])
def test_error_falls_with_the_order_in_h(
    name: Any, order: Literal[1, 2], slope: float, smooth_net: nn.Module, batch: Batch
) -> None:
    """log error against log h has slope 1 for the forward and 2 for the central difference."""
    steps = torch.tensor([0.04, 0.02, 0.01], dtype=torch.float64)
    exact = regularized_loss(smooth_net, *batch, threat=name, lam=1.0, method="double-backprop").slope
    errors = torch.stack(
        [
            (regularized_loss(smooth_net, *batch, threat=name, lam=1.0, h=h, order=order).slope - exact).abs()
            for h in steps.tolist()
        ]
    )
    measured = (errors[0] / errors[-1]).log() / (steps[0] / steps[-1]).log()
    assert_close(measured.median().item(), slope, rtol=0, atol=0.1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("strength", [{"lam": 0.7}, {"lam": 0.7, "squared": False}, {"eps": 0.1, "weight": 1.5}])
def test_loss_and_weight_gradients_become_double_backprops(
    name: Any, strength: dict[str, Any], smooth_net: nn.Module, batch: Batch
) -> None:
    def run(**how: Any) -> tuple[Tensor, list[Tensor]]:
        loss = regularized_loss(smooth_net, batch[0], batch[1], threat=name, **strength, **how).loss
        return loss.detach(), weight_gradients(smooth_net, loss)

    exact, exact_gradients = run(method="double-backprop")
    close, close_gradients = run(h=1e-4, order=2)
    assert_close(close, exact, rtol=1e-6, atol=0)
    for a, b in zip(close_gradients, exact_gradients, strict=True):
        assert_close(a, b, rtol=1e-5, atol=1e-6 * float(b.abs().max()) + 1e-12)


def test_lambda_over_two_is_the_convention_of_equation_one(smooth_net: nn.Module, batch: Batch) -> None:
    gradient = input_gradient(smooth_net, *batch)
    clean = cross_entropy(smooth_net(batch[0]), batch[1]).mean()
    expected = clean + 0.3 / 2 * gradient.flatten(1).square().sum(1).mean()
    out = regularized_loss(smooth_net, *batch, lam=0.3, h=1e-4, order=2)
    assert_close(out.loss, expected, rtol=1e-7, atol=0)
    assert_close(out.clean + out.penalty, out.loss.detach())


@pytest.mark.parametrize(("scale", "per_pixel"), [("paper", True), ("dual", False)])
def test_linf_penalises_the_squared_l1_norm_over_n_as_the_paper_did_or_the_true_one(
    scale: Literal["paper", "dual"], per_pixel: bool, smooth_net: nn.Module, batch: Batch
) -> None:
    l1 = input_gradient(smooth_net, *batch).flatten(1).abs().sum(1)
    pixels = batch[0][0].numel() if per_pixel else 1
    out = regularized_loss(smooth_net, *batch, threat="linf", lam=2.0, scale=scale, h=1e-5, order=2)
    assert_close(out.penalty, (l1.square() / pixels).mean(), rtol=1e-6, atol=0)
    assert_close(out.grad_norm, l1)


def test_threat_units_are_the_attackers_first_order_gain(smooth_net: nn.Module, batch: Batch) -> None:
    gradient = input_gradient(smooth_net, *batch)
    for name, t in THREATS.items():
        out = regularized_loss(smooth_net, *batch, threat=name, eps=0.02, weight=1.5, h=1e-5, order=2)  # type: ignore[arg-type]
        assert_close(out.penalty, (1.5 * 0.02 * t.dual_norm(gradient)).mean(), rtol=1e-6, atol=0)


def linear_loss(logits: Tensor, y: Tensor) -> Tensor:
    return logits.gather(1, y[:, None]).squeeze(1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("h", [1e-3, 0.1, 7.0])
def test_affine_models_are_exact_for_every_h(name: Any, h: float, batch: Batch) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5)).double()
    layer = model[1]
    assert isinstance(layer, nn.Linear)
    rows = layer.weight.detach()[batch[1]]
    norm = threat(name).dual_norm(rows)
    out = regularized_loss(model, *batch, threat=name, lam=1.0, h=h, criterion=linear_loss)
    assert_close(out.slope, norm, rtol=1e-9, atol=0)
    penalised = norm / rows.shape[1] ** 0.5 if name == "linf" else norm
    assert_close(out.penalty, penalised.square().mean() / 2, rtol=1e-8, atol=0)
    assert_close(out.grad_norm, norm, rtol=1e-12, atol=0)


def test_an_image_does_not_depend_on_its_batch(smooth_net: nn.Module, batch: Batch) -> None:
    x, y = batch
    together = regularized_loss(smooth_net, x, y, lam=1.0)
    alone = [regularized_loss(smooth_net, x[i : i + 1], y[i : i + 1], lam=1.0) for i in range(len(x))]
    assert_close(together.slope, torch.cat([out.slope for out in alone]), rtol=1e-11, atol=0)
    assert_close(together.loss, torch.stack([out.loss for out in alone]).mean(), rtol=1e-12, atol=0)


def test_zero_gradients_cost_nothing_and_give_no_nan(batch: Batch) -> None:
    x, y = batch
    x = torch.cat([x, torch.zeros_like(x[:2])])
    y = torch.cat([y, y[:2]])
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5, bias=False), nn.ReLU(), nn.Linear(5, 5)).double()
    with torch.no_grad():
        model[1].weight.fill_(-1.0)  # type: ignore[operator]
    for t in THREATS.values():
        out = regularized_loss(model, x, y, threat=t, lam=1.0)
        assert not out.slope.any()
        assert not out.grad_norm.any()
        assert all(g.isfinite().all() for g in weight_gradients(model, out.loss))


@pytest.mark.parametrize("strength", [{"lam": 1.0}, {"eps": 0.1}])
def test_saturated_softmax_gives_no_nan(strength: dict[str, float], smooth_net: nn.Module, batch: Batch) -> None:
    x, y = batch[0].float(), batch[1]
    net = smooth_net.float()
    for t in THREATS.values():
        loss = regularized_loss(lambda images: 1e4 * net(images), x, y, threat=t, **strength).loss  # type: ignore[arg-type]
        assert loss.isfinite()
        assert all(g.isfinite().all() for g in weight_gradients(net, loss))


def test_each_image_may_have_its_own_h(smooth_net: nn.Module, batch: Batch) -> None:
    h = torch.linspace(0.01, 0.3, len(batch[0]), dtype=torch.float64)
    mixed = regularized_loss(smooth_net, *batch, lam=1.0, h=h).slope
    single = [regularized_loss(smooth_net, *batch, lam=1.0, h=step).slope[i] for i, step in enumerate(h.tolist())]
    assert_close(mixed, torch.stack(single), rtol=1e-11, atol=0)
    part = regularized_loss(smooth_net, *batch, lam=1.0, h=h, fraction=0.5, step=1).slope
    looked = ~part.isnan()
    assert_close(part[looked], mixed[looked], rtol=1e-11, atol=0)


def test_the_difference_at_the_sign_direction_is_fgsm(smooth_net: nn.Module, batch: Batch) -> None:
    """With scale="dual" and h = ε, x + hd is the FGSM point: penalty and single-step training are ends of one dial."""
    x, y = batch
    eps = 8 / 255
    fgsm = x + eps * input_gradient(smooth_net, x, y).sign()
    out = regularized_loss(smooth_net, x, y, threat="linf", eps=eps, h=eps)
    assert_close(out.loss, cross_entropy(smooth_net(fgsm), y).mean(), rtol=1e-12, atol=0)


def test_any_per_image_criterion(smooth_net: nn.Module, batch: Batch) -> None:
    x, y = batch
    smoothed = nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)
    targets = nn.functional.one_hot(y, 5).double() * 0.7 + 0.3 / 5
    for criterion, labels in ((smoothed, y), (nn.CrossEntropyLoss(reduction="none"), targets)):
        exact = regularized_loss(smooth_net, x, labels, lam=1.0, criterion=criterion, method="double-backprop")
        close = regularized_loss(smooth_net, x, labels, lam=1.0, criterion=criterion, h=1e-4, order=2)
        assert_close(close.loss, exact.loss, rtol=1e-6, atol=0)


def test_threat_objects_and_names_are_the_same(smooth_net: nn.Module, batch: Batch) -> None:
    t: Threat = threat("linf")
    assert (
        regularized_loss(smooth_net, *batch, threat=t, lam=1.0).loss
        == regularized_loss(smooth_net, *batch, threat="linf", lam=1.0).loss
    )


@pytest.mark.parametrize(
    ("how", "h"),
    [
        ({"lam": 0.7}, 0.01),
        ({"lam": 0.7, "squared": False}, 0.01),
        ({"eps": 0.6}, 0.3),
        ({"eps": 0.6, "weight": 3.0}, 0.3),
        ({"eps": 0.0}, 0.01),
    ],
)
def test_h_left_out_is_the_papers_or_half_the_radius(
    how: dict[str, Any], h: float, smooth_net: nn.Module, batch: Batch
) -> None:
    assert_close(
        regularized_loss(smooth_net, *batch, **how).slope,
        regularized_loss(smooth_net, *batch, h=h, **how).slope,
        rtol=0,
        atol=0,
        equal_nan=True,
    )
