"""Which images are robust at a radius, and radii to look at."""

import math

import torch
from torch import Tensor

from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_number, check_numbers
from gradreg.checks.tensors import check_batch, check_column
from gradreg.norms.base import Threat
from gradreg.norms.lp import L2

_DIRECTIONS = 32


def robust_at(distance: Tensor, eps: float) -> Tensor:
    """Images whose nearest known adversarial image lies beyond ε: the one place where that is decided.

    In the precision of the distances: one of 8/255 exactly is not beyond 8/255, though as a double it is larger. A
    misclassified image has distance 0 and is robust nowhere.
    """
    distance = check_column("distance", distance, least=0)
    return distance > torch.tensor(check_number("eps", eps, least=0), dtype=distance.dtype, device="cpu")


def usual(radii: tuple[float, ...]) -> float:
    """The one of several radii that models are compared at: the second."""
    radii = check_numbers("radii", radii, above=0)
    return radii[min(1, len(radii) - 1)]


@validated
def usual_radii_of(threat: Threat, like: Tensor, euclidean: tuple[float, ...] = L2.usual_radii) -> tuple[float, ...]:
    """Where robust error is quoted on images shaped as those of `like`: the norm's own radii, if it has any.

    Otherwise the norm that random perturbations of the usual l2 lengths have on average, to two digits. On CIFAR-10,
    an l2 length of 0.5 is about 8/255 in l∞ by this rule.
    """
    euclidean = check_numbers("euclidean", euclidean, above=0)
    check_batch(like, "like")
    return threat.usual_radii or tuple(_two_digits(radius * _typical(threat, like)) for radius in euclidean)


@validated
def reach_of(threat: Threat, like: Tensor) -> float:
    """How far from an image its loss is sampled: what the norm says, or else as far as in l2, in the same sense."""
    check_batch(like, "like")
    return threat.reach if threat.reach is not None else _two_digits(L2.reach * _typical(threat, like))


def _typical(threat: Threat, like: Tensor) -> float:
    """The mean norm of random directions of l2 length 1."""
    source = torch.Generator().manual_seed(0)
    directions = torch.randn((_DIRECTIONS, *like.shape[1:]), generator=source, device="cpu")
    directions = L2().ascent(directions).to(like.device)
    return float(threat.norm(directions).double().mean())


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}") if math.isfinite(value) else value
