"""Does a bound hold? Comparison with the distances of adversarial images that attacks found."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gradreg.errors import ConfigError, DataError

Kind = Literal["heuristic", "probabilistic", "sound"]

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
    kind: Kind


def violations(bound: Tensor, distance: Tensor, *, kind: Kind = "heuristic") -> Violations:
    """Compare per-image radii with per-image attack distances (0: misclassified, inf: none found)."""
    if kind not in ("heuristic", "probabilistic", "sound"):
        raise ConfigError(f"kind must be 'heuristic', 'probabilistic' or 'sound'; got {kind!r}.")
    if bound.shape != distance.shape or bound.ndim != 1:
        raise DataError(
            f"There must be one bound and one distance per image; got shapes {tuple(bound.shape)} and "
            f"{tuple(distance.shape)}."
        )
    if bool(bound.isnan().any()) or bool(distance.isnan().any()) or bool((bound < 0).any()):
        raise DataError("Bounds and distances must be ≥ 0; got some that are negative or NaN.")
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
