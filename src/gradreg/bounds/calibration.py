"""Bounds that hold against attacks for a share 1 − α of images: split conformal prediction (Vovk; Lei et al. 2018).

An estimated bound is some multiple of the distance at which attacks break an image. On images that nobody bounds, the
multiples are known. The bound of a fresh image of the same distribution, divided by the ⌈(n + 1)(1 − α)⌉-th smallest of
them, is at most the distance that the same attacks find, with probability ≥ 1 − α over both draws. Nothing is assumed
about the distribution or the bound, but the images must be exchangeable. Stronger attacks may violate more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, exp, lgamma

import torch
from torch import Tensor

from gradreg.bounds.errors import BoundsError
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_integer, check_number
from gradreg.checks.tensors import check_column

# The terms of a sum, a few seconds of it.
_MOST_IMAGES = 10_000_000


@dataclass(frozen=True)
class Calibration:
    """By what to divide bounds, from the bounds and the attack distances of calibration images."""

    alpha: float
    """At most this share of fresh images has an adversarial image nearer than the calibrated bound."""
    scale: float
    """s: what the search around an image finds ("local"), or its ω-bound, is divided by this."""
    omega_scale: float
    """The same for the ω-bound by itself, and for the L-bound; each holds with 1 − α, not both at once."""
    lipschitz_scale: float
    attacks: str
    """The suite that broke the calibration images; the promise is about these attacks alone."""
    n: int
    """Calibration images that are classified correctly. Others have nothing to bound and are left out."""
    unbroken: int
    """Those among them that the attacks did not break; they count as infinitely far."""
    about: str = ""
    """What the bounds were estimated with; other bounds are not divided by these scales."""
    keys: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64, device="cpu"), compare=False)
    """Fingerprints of the calibration images, which must not be those bounded."""


def least_images(alpha: float) -> int:
    """The fewest calibration images for α: ⌈1/α⌉ − 1. With fewer, no bound but 0 would hold."""
    return ceil(1 / _exact(check_number("alpha", alpha, above=0, below=1))) - 1


def check_enough(images: int, alpha: float) -> None:
    """Refuse too few calibration images."""
    least = least_images(alpha)
    if images < least:
        raise BoundsError(
            f"alpha = {alpha:g} needs at least {least} correctly classified calibration images; got {images}. Pass "
            "more images, or a larger alpha."
        )


def conformal_scale(bound: Tensor, distance: Tensor, alpha: float) -> float:
    """s, the ⌈(n + 1)(1 − α)⌉-th smallest bound/distance of the n correctly classified images (distance > 0).

    An image that was not broken (distance inf) has the multiple 0. Ties only make the promise safer.
    """
    bound = check_column("bound", bound, least=0).double()
    distance = check_column("distance", distance, len(bound), least=0).to(bound.device).double()
    correct = distance > 0
    n = int(correct.sum())
    check_enough(n, alpha)
    ratio = (bound[correct] / distance[correct]).sort().values
    scale = float(ratio[rank(n, alpha) - 1])
    if scale == 0:
        broken = int((correct & distance.isfinite()).sum())
        raise BoundsError(
            f"The attacks broke only {broken} of {n} calibration images, so that a bound calibrated at alpha = "
            f"{alpha:g} would be infinite: use stronger attacks."
        )
    return scale


def rank(n: int, alpha: float) -> int:
    """⌈(n + 1)(1 − α)⌉, with α as it is written: 0.05 is a twentieth, which no float is."""
    return n + 1 - int((n + 1) * _exact(alpha))


def cross_calibrated(bound: Tensor, distance: Tensor, alpha: float) -> Tensor:
    """Calibrated bounds of images that are attacked anyway: each half's by the other half, so no image by itself.

    Images must be in random order, since the halves are every other image.
    """
    check_column("distance", distance, len(check_column("bound", bound, least=0)), least=0)
    halves = [torch.arange(first, len(bound), 2, device=bound.device) for first in (0, 1)]
    found = torch.zeros_like(bound)
    for mine, others in (halves, reversed(halves)):
        found[mine] = bound[mine] / conformal_scale(bound[others], distance[others.to(distance.device)], alpha)
    return found


@validated
def chance_of(violated: int, images: int, calibration: Calibration) -> float:
    """The probability that as many or more of so many fresh images violate the bound, if all are exchangeable.

    How many exceed the k-th smallest of n has a negative hypergeometric distribution: a beta-binomial one, not a
    binomial, since s is itself drawn. Ties make violations rarer, so this is never too small.
    """
    images = check_integer("images", images, least=0, ends=_MOST_IMAGES)
    violated = check_integer("violated", violated, least=0, most=images)
    n, k = calibration.n, rank(calibration.n, calibration.alpha)
    whole = _log_choose(n + images, images)
    terms = (
        _log_choose(above + n - k, above) + _log_choose(images - above + k - 1, images - above) - whole
        for above in range(violated, images + 1)
    )
    return min(1.0, sum(map(exp, terms)))


@dataclass(frozen=True)
class Attacked:
    """Calibration images with the bounds that are to be calibrated and how far the attacks had to go."""

    score: Tensor
    omega: Tensor
    lipschitz: Tensor
    distance: Tensor
    keys: Tensor

    def calibration(self, alpha: float, attacks: str | Sequence[str], about: str) -> Calibration:
        """The scale of each of the bounds."""
        correct = self.distance > 0
        return Calibration(
            alpha,
            conformal_scale(self.score, self.distance, alpha),
            conformal_scale(self.omega, self.distance, alpha),
            conformal_scale(self.lipschitz, self.distance, alpha),
            suite_name(attacks),
            n=int(correct.sum()),
            unbroken=int((correct & self.distance.isinf()).sum()),
            about=about,
            keys=self.keys,
        )


def suite_name(attacks: str | Sequence[str]) -> str:
    """A suite, or attacks with commas between."""
    return attacks if isinstance(attacks, str) else ",".join(attacks)


def _exact(alpha: float) -> Fraction:
    return Fraction(repr(alpha))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
