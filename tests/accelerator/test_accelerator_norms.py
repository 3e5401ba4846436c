"""Norms with parameters of their own, and a user's, on the pretended device."""

from typing import Any

import pytest
import torch
from torch import Tensor

import gradreg
from accelerator.accelerated import HOST, assert_same, images, network, on, places
from accelerator.test_accelerator_measures import calibration, loader
from accelerator.waits import watching
from gradreg.norms import Mahalanobis, Pixelwise, Threat, Weighted
from gradreg.norms.lp import L2


class Doubled(Threat):
    """A user's own: twice the l2 norm."""

    symbol, dual = "2·l2", "2·l2"
    usual_radii, reach = (0.5, 1.0), 4.0

    def norm(self, v: Tensor) -> Tensor:
        return 2 * L2().norm(v)

    def dual_norm(self, g: Tensor) -> Tensor:
        return L2().dual_norm(g) / 2

    def ascent(self, g: Tensor) -> Tensor:
        return L2().ascent(g) / 2

    def project(self, v: Tensor, radius: Any) -> Tensor:
        return L2().project(v, radius / 2)

    def sample(self, like: Tensor, radius: Any, generator: torch.Generator) -> Tensor:
        return L2().sample(like, radius / 2, generator)

    def sample_surface(self, like: Tensor, radius: Any, generator: torch.Generator) -> Tensor:
        return L2().sample_surface(like, radius / 2, generator)


def matrix() -> Tensor:
    some = torch.rand(3, 3, generator=torch._C.Generator().manual_seed(7), dtype=torch.float64)
    return some @ some.T + torch.eye(3, dtype=torch.float64)


THREATS: dict[str, Any] = {
    "weighted": lambda: Weighted("l2", torch.tensor([1.0, 2.0, 0.5]).view(3, 1, 1)),
    "weighted linf": lambda: Weighted("linf", torch.tensor([1.0, 2.0, 0.5]).view(3, 1, 1)),
    "mahalanobis": lambda: Mahalanobis(matrix()),
    "pixelwise": Pixelwise,
    "a user's own": Doubled,
}


@pytest.mark.parametrize("name", THREATS)
def test_norms_give_the_host_s_answers(name: str) -> None:
    found = []
    for place in places():
        model, x, y = on(place, network(), *images())
        threat = THREATS[name]()
        out = gradreg.regularized_loss(model, x, y, threat=threat, lam=0.1)
        result = gradreg.attack(model, x, y, threat=threat, attacks="quick")
        found.append((out.loss.detach(), out.grad_norm, out.slope, result.distance, result.adversarial))
    assert_same(found[1], found[0])


@pytest.mark.parametrize("name", THREATS)
def test_a_step_never_waits(name: str, device: torch.device) -> None:
    """Parameters are moved once, and a user's norm is checked once."""
    model, x, y = on(device, network(), *images())
    penalty = gradreg.GradientPenalty(threat=THREATS[name](), lam=0.1, fraction=0.5)
    penalty(model, x, y).loss.backward()
    with watching() as waits:
        penalty(model, x, y).loss.backward()
    assert not waits.looks + waits.sends


def test_parameters_may_come_from_the_device(device: torch.device) -> None:
    x, _ = images()
    there = Mahalanobis(matrix().to(device)).norm(x.to(device))
    assert_same(there, Mahalanobis(matrix()).norm(x))


def test_an_object_that_counts_its_steps_takes_an_h_of_the_device(device: torch.device) -> None:
    found = []
    for place in places():
        model, x, y = on(place, network(), *images())
        penalty = gradreg.GradientPenalty(lam=0.1, h=torch.full((len(x),), 0.02, device=place), lazy=2)
        found.append([penalty(model, x, y).loss.detach() for _ in range(3)])
    assert_same(found[1], found[0])


def test_calibrated_bounds_are_the_host_s(device: torch.device) -> None:
    """Images to calibrate on come from a loader on the host, too."""
    few: dict[str, Any] = {"method": "ascent", "eps": [0.05, 0.1, 0.2, 0.4], "block_size": 2, "alpha": 0.2}
    x, y = images()
    here = gradreg.estimate_regularity(network(), calibration(), **few, attacks="quick")
    there = gradreg.estimate_regularity(on(device, network()), loader(), **few, attacks="quick")
    assert_same(there, here, place=HOST)
    model, far, labels = on(device, network(), x, y)
    bounds = gradreg.bounds(model, far, labels, there), gradreg.bounds(network(), x, y, here)
    assert_same(*([bound.calibrated, bound.calibrated_omega, bound.calibrated_lipschitz] for bound in bounds))
