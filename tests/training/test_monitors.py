"""Held-out metrics on networks where the answer is known."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.processes import Processes
from gradreg.runs.settings import Probe
from gradreg.training.monitors import evaluate_held_out

ALONE = Processes(0, 1, torch.device("cpu"))


def linear(classes: int = 2) -> nn.Sequential:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, classes))
    for weight in model.parameters():
        nn.init.normal_(weight)
    return model


def images(count: int = 40) -> Tensor:
    return 0.4 + 0.2 * torch.rand(count, 1, 4, 4)


def numbered(*batches: tuple[Tensor, Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches with the images' numbers, as they come."""
    sizes = [len(y) for _, y in batches]
    numbers = torch.arange(sum(sizes)).split(sizes)
    return [(x, y, number) for (x, y), number in zip(batches, numbers, strict=True)]


@pytest.mark.parametrize("name", ["l2", "linf"])
def test_robust_accuracy_of_a_linear_model_is_exact(name: str) -> None:
    """An image is robust at ε exactly when its margin exceeds ε times the dual norm of the weights' difference."""
    model, x = linear(), images()
    with torch.no_grad():
        y = model(x).argmax(1)
        y[:5] = 1 - y[:5]
        logits = model(x)
        weight = model[1].weight[0] - model[1].weight[1]  # type: ignore[index]
        slope = weight.norm() if name == "l2" else weight.abs().sum()
        distance = (logits[:, 0] - logits[:, 1]).abs() / slope
    near = distance[5:].sort().values[10:25]
    widest = near.diff().argmax()
    eps = near[widest : widest + 2].mean().item()  # well away from every image's own distance
    found = evaluate_held_out(model, numbered((x[:25], y[:25]), (x[25:], y[25:])), Probe(name, eps, images=40), ALONE)  # type: ignore[arg-type]
    right = torch.arange(40) >= 5
    assert found.clean == pytest.approx(35 / 40)
    assert found.probe == pytest.approx((right & (distance > eps)).float().mean().item())
    assert found.single_step == found.probe
    assert found.zero_gradients == 0
    assert found.score == found.probe


def test_gradient_norms_and_linearity() -> None:
    model, x = linear(), images()
    y = torch.zeros(40, dtype=torch.int64)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(leaf), y, reduction="sum"), leaf)
    norms = gradient.flatten(1).norm(dim=1)
    found = evaluate_held_out(model, numbered((x, y)), Probe("l2", 1e-3, images=40), ALONE)
    assert_close(torch.tensor([found.grad_norm, found.grad_norm_max]), torch.stack([norms.mean(), norms.max()]))
    assert found.linearity_error is not None
    assert found.linearity_error < 0.02 * norms.mean().item()
    wider = evaluate_held_out(model, numbered((x, y)), Probe("l2", 2.0, images=40), ALONE)
    assert wider.linearity_error is not None
    assert wider.linearity_error > 10 * found.linearity_error, "the loss of a sure classifier bends"


def test_constant_networks_and_zero_gradients_show() -> None:
    model = linear(3)
    model[1].weight.data.zero_()  # type: ignore[operator]
    x, y = images(), torch.zeros(40, dtype=torch.int64)
    found = evaluate_held_out(model, numbered((x, y)), Probe("linf", 0.1, images=12), ALONE)
    assert found.commonest == 1
    assert (found.probed, found.zero_gradients) == (12, 1)


def test_without_a_probe_clean_accuracy_is_the_score() -> None:
    model, x = linear(), images()
    model.train()
    y = torch.zeros(40, dtype=torch.int64)
    found = evaluate_held_out(model, numbered((x, y)), None, ALONE)
    assert found.probe is None
    assert found.score == found.clean
    assert model.training


def test_neither_batches_nor_their_order_change_the_metrics() -> None:
    """The probe, too, takes the same images from the same starts."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 3)).double()
    for weight in model.parameters():
        nn.init.normal_(weight)
    x, y = images().double(), torch.arange(40) % 3
    probe = Probe("l2", 0.3, steps=3, images=17)
    whole = evaluate_held_out(model, numbered((x, y)), probe, ALONE)
    assert whole.probed == 17
    assert whole.probe not in (0, whole.clean)
    shuffled = torch.randperm(40)
    cut = [(x[rows], y[rows], rows) for rows in shuffled.split(7)]
    other = evaluate_held_out(model, cut, probe, ALONE)
    for name, value in vars(whole).items():
        assert getattr(other, name) == pytest.approx(value, rel=1e-6), name
