"""Ties that an attack walks into: errors where they hold, and no false adversarial image where they do not."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg.losses import margin, misclassified


class Plateau(nn.Module):
    """Right up to 0.5 of the first pixel, level from there on: the rival is never ahead."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.relu(0.5 - x[:, 0]), 0 * x[:, 0]], 1)


class Head(nn.Module):
    """Logits on a grid, with a straight gradient."""

    def __init__(self, inner: nn.Module, form: str) -> None:
        super().__init__()
        self.inner, self.form = inner, form

    def forward(self, x: Tensor) -> Tensor:
        logits = 3 * self.inner(x)
        grid = logits.round() if self.form == "whole" else logits.bfloat16().to(logits.dtype)
        found: Tensor = logits + (grid - logits).detach()
        return found


def alone(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(image[None]) for image in x])


@pytest.mark.parametrize("threat", ["l2", "linf", "l1"])
@pytest.mark.parametrize("how", [{"attacks": "quick"}, {"attacks": "standard"}, {"attacks": "quick", "eps": 0.3}])
def test_a_plateau_of_ties_is_reached_where_it_begins(threat: Any, how: dict[str, Any]) -> None:
    x = torch.full((4, 5), 0.1)
    y = torch.zeros(4, dtype=torch.int64)
    found = gradreg.attack(Plateau().eval(), x, y, threat=threat, **how)
    assert (found.distance >= 0.4 - 1e-6).all()
    assert found.robust_accuracy(0.39) == 1
    if "eps" not in how:
        assert (found.distance < 0.41).all()
        assert found.robust_accuracy(0.41) == 0
    assert misclassified(alone(Plateau(), found.adversarial[found.success]), y[found.success]).all()


@pytest.mark.parametrize("form", ["whole", "bf16"])
@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_logits_on_a_grid(form: str, threat: Any, linear: nn.Module, images: Tensor) -> None:
    x, inner = images.float(), linear.float()
    model = Head(inner, form).eval()
    y = inner(x).argmax(1)
    wrong = misclassified(alone(model, x), y)
    found = gradreg.attack(model, x, y, threat=threat, attacks="quick")
    assert found.robust_accuracy(0) == 1 - float(wrong.double().mean())
    assert misclassified(alone(model, found.adversarial[found.success]), y[found.success]).all()
    # Where the logits tie, the true model is within half a level of its boundary, and never beyond it.
    strict = gradreg.attack(inner, x, y, threat=threat, attacks="quick")
    assert (found.distance <= 1.002 * strict.distance).double().mean() > 0.9


def test_on_an_honest_model_the_rival_is_ahead(linear: nn.Module, images: Tensor) -> None:
    """Ties of rounding at the end of a bisection are not returned: argmax is wrong too, and in any batch."""
    x, model = images.float(), linear.float()
    y = model(x).argmax(1)
    for threat in ("l2", "linf", "l1"):
        found = gradreg.attack(model, x, y, threat=threat, attacks="standard")
        assert found.success.all()
        assert (margin(alone(model, found.adversarial), y) > 0).all()
        assert (alone(model, found.adversarial).argmax(1) != y).all()


def test_a_budget_is_kept_with_ties_too() -> None:
    x = torch.full((4, 5), 0.1)
    found = gradreg.attack(Plateau().eval(), x, torch.zeros(4, dtype=torch.int64), attacks="quick", budget=20)
    assert found.propagations.max() <= 20


def test_quantised_ties_stay_on_the_grid() -> None:
    x = torch.full((4, 5), 26 / 255)
    found = gradreg.attack(Plateau().eval(), x, torch.zeros(4, dtype=torch.int64), attacks="quick", quantize=8)
    levels = 255 * found.adversarial
    assert (levels - levels.round()).abs().max() < 1e-4


def test_a_constant_model_is_certified_nowhere() -> None:
    def constant(x: Tensor) -> Tensor:
        return x.new_zeros(len(x), 4) + 0 * x.flatten(1).sum(1, keepdim=True)

    x, y = torch.rand(8, 3, 4, 4), torch.arange(8) % 4
    for method in ("sequential", "cohen"):
        certificates = gradreg.certify(constant, x, sigma=0.25, n=500, method=method)
        assert (certificates.prediction == -1).all()
        assert not certificates.radius.any()
    found = gradreg.evaluate(constant, (x, y), threat="l2", attacks="quick", regularity="local", diagnosis=False)
    assert found.wrong.all()
    assert not found.threats["l2"].distance.any()
