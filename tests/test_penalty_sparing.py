"""lazy and fraction: the same penalty on average, for less work."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from gradreg import regularized_loss
from gradreg.losses import cross_entropy

Batch = tuple[Tensor, Tensor]


def gradient(model: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def test_lazy_is_the_full_penalty_on_average_over_k_steps(smooth_net: nn.Module, batch: Batch) -> None:
    full = gradient(smooth_net, regularized_loss(smooth_net, *batch, lam=1.0).loss)
    lazy = [regularized_loss(smooth_net, *batch, lam=1.0, lazy=4, step=step) for step in range(8, 12)]
    assert_close(torch.stack([gradient(smooth_net, out.loss) for out in lazy]).mean(0), full, rtol=1e-9, atol=1e-12)
    assert [bool(out.penalty) for out in lazy] == [True, False, False, False]
    assert lazy[1].grad_norm.isnan().all()


def test_fraction_is_the_full_penalty_on_average(smooth_net: nn.Module, batch: Batch) -> None:
    """Every image must come up equally often: the mean over many steps is within four standard errors of the whole."""
    full = regularized_loss(smooth_net, *batch, lam=1.0).penalty
    parts = torch.stack(
        [regularized_loss(smooth_net, *batch, lam=1.0, fraction=0.3, step=step).penalty for step in range(600)]
    )
    error = parts.std() / len(parts) ** 0.5
    assert 0 < error < 0.1 * full
    assert (parts.mean() - full).abs() < 4 * error


def test_fraction_leaves_the_clean_loss_and_the_order_of_images_alone(smooth_net: nn.Module, batch: Batch) -> None:
    full = regularized_loss(smooth_net, *batch, lam=1.0)
    part = regularized_loss(smooth_net, *batch, lam=1.0, fraction=0.3, step=5)
    looked = ~part.grad_norm.isnan()
    assert looked.sum() == 2
    assert_close(part.clean, full.clean, rtol=1e-12, atol=0)
    assert_close(part.logits, full.logits, rtol=1e-10, atol=1e-12)
    assert_close(part.grad_norm[looked], full.grad_norm[looked], rtol=1e-10, atol=0)
    assert_close(part.penalty, full.slope[looked].square().mean() / 2, rtol=1e-9, atol=0)


def test_fraction_with_batch_statistics_takes_both_losses_from_the_same_images() -> None:
    """A difference between a loss under the batch's statistics and one under the part's would not go to 0 with h."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 3)).double()
    x, y = torch.rand(12, 1, 8, 8, dtype=torch.float64), torch.randint(0, 3, (12,))
    out = regularized_loss(model, x, y, lam=1.0, fraction=0.5, step=3, h=1e-4)
    looked = ~out.slope.isnan()
    alone = regularized_loss(model, x[looked], y[looked], lam=1.0, h=1e-4)
    assert_close(out.slope[looked].sort().values, alone.slope.sort().values, rtol=1e-5, atol=0)
    assert_close(out.clean, cross_entropy(model(x), y).mean().detach(), rtol=1e-12, atol=0)


def test_a_penalty_of_strength_zero_is_plain_training(smooth_net: nn.Module, batch: Batch) -> None:
    out = regularized_loss(smooth_net, *batch, lam=0.0)
    assert_close(
        gradient(smooth_net, out.loss), gradient(smooth_net, cross_entropy(smooth_net(batch[0]), batch[1]).mean())
    )


def conv_net(norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 32), (32, 32)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs) if norm else nn.Identity(),
            nn.GELU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def flops(model: nn.Module, how: dict[str, Any] | None) -> int:
    """Of a step after the first, which also tries whether the model repeats and resolves a difference."""
    x, y = torch.rand(8, 3, 16, 16), torch.randint(0, 10, (8,))
    for _ in range(2):
        with FlopCounterMode(display=False) as counter:
            if how is None:
                cross_entropy(model(x), y).mean().backward()
            else:
                regularized_loss(model, x, y, **({} if "eps" in how else {"lam": 1.0}) | how).backward()
    return int(counter.get_total_flops())


def test_the_first_step_costs_eight_forwards_more_and_the_tenth_one() -> None:
    model, counts = conv_net(norm=True), []
    x, y = torch.rand(8, 3, 16, 16), torch.randint(0, 10, (8,))
    for _ in range(12):
        with FlopCounterMode(display=False) as counter:
            regularized_loss(model, x, y, lam=1.0).backward()
        counts.append(counter.get_total_flops())
    assert counts[1:9] == [counts[1]] * 8
    assert counts[0] / counts[1] == pytest.approx(15 / 7, rel=0.03)
    assert counts[9] / counts[1] == pytest.approx(8 / 7, rel=0.03)
    assert counts[10:] == [counts[1]] * 2


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(
    ("how", "forwards"),
    [
        ({}, 7),
        ({"eps": 0.1}, 6),
        ({"lam": 1.0, "squared": False}, 6),
        ({"eps": 0.1, "h": torch.full((8,), 0.01)}, 7),
        ({"eps": 0.1, "h": 0.1}, 5),
        ({"order": 2}, 9),
        ({"eps": 0.1, "order": 2}, 9),
        ({"eps": 0.1, "h": 0.1, "noise": 0.1}, 5),
        ({"eps": 0.1, "noise": 0.1}, 6),
        ({"eps": 0.1, "h": 0.1, "noise": 0.1, "statistics": "clean"}, 6),
        ({"eps": 0.1, "h": 0.1, "noise": 0.1, "output_slope": 1.0}, 7),
        ({"graphs": 2}, 7),
        ({"graphs": 2, "order": 2}, 10),
    ],
)
def test_what_a_step_costs_against_three_forwards(how: dict[str, Any], forwards: int, norm: bool) -> None:
    """Where the coefficient of ℓ(x) is known beforehand, one backward gives ∇ℓ(x) and its share of the weights'
    gradients; with ε = h that share is nothing, and the step is FGSM training's."""
    model = conv_net(norm)
    assert flops(model, how) / flops(model, None) == pytest.approx(forwards / 3, rel=0.03)


def test_lazy_and_fraction_cost_four_forwards_against_three() -> None:
    model = conv_net(norm=False)
    plain = flops(model, None)
    lazy = sum(flops(model, {"lazy": 4, "step": step}) for step in range(4)) / 4
    assert lazy / plain == pytest.approx(4 / 3, rel=0.03)
    assert flops(model, {"fraction": 0.25, "step": 0}) / plain == pytest.approx(4 / 3, rel=0.03)
    assert flops(model, {"fraction": 0.25, "step": 0, "eps": 0.1}) / plain == pytest.approx(3.75 / 3, rel=0.03)
    assert flops(conv_net(norm=True), {"fraction": 0.25, "step": 0}) / plain == pytest.approx(4.75 / 3, rel=0.03)


def test_the_result_can_go_backward_without_the_inputs_gradient() -> None:
    """With two graphs `out.backward()` does the first layer's work less than `out.loss.backward()`; one has no such."""
    model = conv_net(norm=False)
    x, y = torch.rand(8, 3, 16, 16), torch.randint(0, 10, (8,))
    counts = []
    grads = []
    for finish in ("loss", "result"):
        model.zero_grad()
        out = regularized_loss(model, x, y, lam=1.0, graphs=2)
        with FlopCounterMode(display=False) as counter:
            out.loss.backward() if finish == "loss" else out.backward()
        counts.append(counter.get_total_flops())
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    first_layer = 2 * 8 * 16 * 16 * 16 * 3 * 9
    assert counts[0] - counts[1] == first_layer
    for a, b in zip(*grads, strict=True):
        assert_close(a, b)
