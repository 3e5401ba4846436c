"""Odd values that are valid: what they must mean, known in closed form for a linear model."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from arguments import toys
from arguments.toys import Counting
from gradreg import GradregError
from gradreg.attacks.suite import ATTACKS

FINDING = [name for name, attack in ATTACKS.items() if attack.claims]


def labels_with_one_wrong() -> Tensor:
    y = toys.labels()
    y[0] = (y[0] + 1) % toys.CLASSES
    return y


@pytest.mark.parametrize("threat", ["l2", "linf", "l1"])
def test_a_radius_of_0_is_the_clean_accuracy(threat: Any) -> None:
    found = gradreg.attack(Counting(), toys.images(), labels_with_one_wrong(), threat=threat, eps=0, attacks=["fmn"])
    assert found.robust_accuracy(0) == 0.75
    assert found.distance[0] == 0
    assert bool((found.distance[1:] > 0).all())


@pytest.mark.parametrize("name", FINDING)
def test_no_attack_takes_a_huge_radius_for_robustness(name: str) -> None:
    """The box ends long before, and in it every image of this model has an adversarial one."""
    threat = ATTACKS[name].only[0] if ATTACKS[name].only else "l2"
    attack = getattr(import_module("gradreg.attacks"), name)
    for eps in (10**12, 3e38):
        found = attack(Counting(), toys.images(), toys.labels(), threat=threat, eps=eps)
        assert found.robust_accuracy(eps) == 0, f"{name} at {eps:g}"


def test_a_suite_takes_no_huge_radius_for_robustness() -> None:
    found = gradreg.attack(Counting(), toys.images(), toys.labels(), eps=3e38, attacks="quick")
    assert found.robust_accuracy(3e38) == 0


def test_distances_beyond_any_radius_are_robust_at_it_if_nothing_was_found() -> None:
    distance = torch.tensor([0.0, 0.5, torch.inf])
    assert gradreg.norms.robust_at(distance, 3e38).tolist() == [False, False, True]


@pytest.mark.parametrize("strength", [{"lam": 0}, {"eps": 0}, {"eps": 0.1, "weight": 0}])
def test_a_strength_of_0_is_the_loss_alone(strength: dict[str, Any]) -> None:
    model, x, y = Counting(), toys.images(), toys.labels()
    out = gradreg.regularized_loss(model, x, y, **strength)
    out.backward()
    penalised = model.layer.weight.grad
    assert penalised is not None
    plain = Counting()
    loss = nn.functional.cross_entropy(plain(x), y)
    loss.backward()
    assert_close(out.loss, loss)
    assert out.penalty == 0
    assert_close(penalised, plain.layer.weight.grad)


@pytest.mark.parametrize("threat", ["l2", "linf", "l1"])
@pytest.mark.parametrize("strength", [{"lam": 1.0}, {"eps": 0.1}])
def test_the_norm_and_the_slope_are_in_the_same_units(threat: Any, strength: dict[str, Any]) -> None:
    """Of a loss that is linear in the pixels they are the same number, the dual norm; √N apart they would not be."""
    model, x, y = Counting(), toys.images(), toys.labels()
    out = gradreg.regularized_loss(
        model, x, y, threat=threat, criterion=lambda logits, y: logits.gather(1, y[:, None]).squeeze(1), **strength
    )
    exact = gradreg.threat(threat).dual_norm(model.layer.weight.detach()[y].view_as(x))
    assert_close(out.grad_norm, exact, rtol=1e-4, atol=1e-5)
    assert_close(out.slope, exact, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("h", [0.0, -0.1, torch.nan, torch.inf, 1e-300])
def test_a_length_per_image_is_checked_like_one_for_all(h: float) -> None:
    each = torch.full((toys.COUNT,), 0.1, dtype=torch.float64)
    each[1] = h
    model, x, y = Counting(), toys.images(), toys.labels()
    for given in (h, torch.tensor(h), each):
        Counting.calls = 0
        with pytest.raises(GradregError, match="h must be"):
            gradreg.regularized_loss(model, x, y, eps=0.1, h=given)
        assert Counting.calls == 0


def test_more_samples_than_end_are_refused_at_once() -> None:
    Counting.calls = 0
    with pytest.raises(GradregError, match="n must be from 1 to 10000000"):
        gradreg.certify(Counting(), toys.images(), sigma=0.25, n=10**12)
    assert Counting.calls == 0
