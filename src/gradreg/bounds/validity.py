"""Does a bound hold? Comparison with the distances of adversarial images that attacks found."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from gradreg.checks.scalars import check_choice
from gradreg.checks.tensors import check_column

_Kind = Literal["heuristic", "calibrated", "probabilistic", "sound"]

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Violations:
    """How a bound fared against an attack. Only "probabilistic" and "sound" bounds may be called certified."""

    rate: float
    """Fraction of images with an adversarial image closer than the bound; a better attack can only find more."""
    worst_ratio: float
    """Largest bound/distance; above 1 it is a violation."""
    tightness: float
    """Mean bound over mean distance."""
    n: int
    """Correctly classified images; the others have nothing to bound."""
    unbroken: int
    """Images among them for which the attack found nothing; they cannot show a violation."""
    kind: _Kind


def violations(bound: Tensor, distance: Tensor, *, kind: _Kind = "heuristic") -> Violations:
    """Compare per-image radii with per-image attack distances (0: misclassified, inf: none found)."""
    check_choice("kind", kind, get_args(_Kind))
    bound = check_column("bound", bound, least=0)
    distance = check_column("distance", distance, len(bound), least=0)
    bound, distance = bound.double(), distance.to(bound.device).double()
    correct, broken = distance > 0, (distance > 0) & distance.isfinite()
    ratio = bound[broken] / distance[broken]
    violated = bound[broken] > distance[broken] + _TOLERANCE
    n = int(correct.sum())
    nothing = float("nan")
    return Violations(
        rate=int(violated.sum()) / n if n else nothing,
        worst_ratio=float(ratio.max()) if len(ratio) else nothing,
        tightness=float(bound[broken].mean() / distance[broken].mean()) if len(ratio) else nothing,
        n=n,
        unbroken=n - int(torch.count_nonzero(broken)),
        kind=kind,
    )
