"""An exact group-sequential test of "is this class that frequent?", for one threshold or a whole grid of them.

Counts are looked at after n₁ < … < n_K samples. Under the null p ≤ p₀ the count passes its boundary b_k at any look
with probability at most α, which is spent as α(k/K)² by look k. The probabilities are exact: binomial distributions
are convolved from look to look, and what has passed the boundary is taken out.

The nulls of a grid of radii are nested and the boundaries rise with the radius. So to accept any radius that is too
large the count must have passed the boundary of the smallest such radius: α holds for the grid as a whole, at no price.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_FIRST_LOOK = 32
_LOOKS = 24
_NEGLIGIBLE = 1e-18  # of a distribution's mass, cut off at either side
_ROUNDING = 1e-9  # of the budget, kept back for rounding and for what was cut off


@dataclass(frozen=True)
class Plan:
    """Looks, and for each null probability the counts at which it is rejected or given up on."""

    looks: Ints
    reject: Ints
    """(thresholds, looks): a count of at least this rejects the null."""
    give_up: Ints
    """(thresholds, looks): at this count or below, rejecting later is not to be expected. May be ignored at will."""

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Which nulls can be rejected at all, should every sample agree."""
        reachable: NDArray[np.bool_] = np.any(self.reject <= self.looks, axis=1)
        return reachable


def make_plan(null: Floats, n: int, alpha: float) -> Plan:
    """The test of each p ≤ null[j], ascending, with at most n samples and an error of α for all of them together."""
    looks = _look_sizes(n)
    reject = np.array([_boundary(float(p), looks, alpha) for p in null])
    give_up = np.array(looks) - np.array([_boundary(float(1 - p), looks, alpha) for p in null])
    # Monotone as a matter of fact but for rounding; nesting is what the guarantee rests on, so it is made sure of.
    return Plan(np.array(looks), np.maximum.accumulate(reject, 0), np.maximum.accumulate(give_up, 0))


def _look_sizes(n: int) -> tuple[int, ...]:
    """24 sample sizes in geometric progression, the last of them n; fewer if n is small."""
    sizes = np.geomspace(min(_FIRST_LOOK, n), n, _LOOKS).round().astype(int)
    return tuple(int(size) for size in np.unique(sizes))


@lru_cache(maxsize=4096)
def _boundary(p: float, looks: tuple[int, ...], alpha: float) -> Ints:
    """b_k: the smallest count whose exact cumulative crossing probability under p is within α(k/K)²."""
    spent, before = 0.0, 0
    start, alive = 0, np.ones(1)  # P(count = start + i, no boundary passed)
    bounds = []
    for k, size in enumerate(looks, 1):
        low, step = _binomial(size - before, p)
        start, alive, before = start + low, np.convolve(alive, step), size
        budget = alpha * (1 - _ROUNDING) * (k / len(looks)) ** 2 - spent
        tail = alive[::-1].cumsum()[::-1]
        keep = int(np.count_nonzero(tail > budget))  # the tail falls, so these are the first entries
        bounds.append(min(start + keep, size + 1))
        spent += float(tail[keep]) if keep < len(tail) else 0.0
        alive = alive[:keep]
        start, alive = _trim(start, alive)
    return np.array(bounds)


def _binomial(n: int, p: float) -> tuple[int, Floats]:
    """The probabilities of Binomial(n, p) where they are not negligible, and the count they start at."""
    from scipy.stats import binom

    low, high = int(binom.ppf(_NEGLIGIBLE, n, p)), int(binom.isf(_NEGLIGIBLE, n, p))
    low = max(low, 0)
    counts = np.arange(low, min(high, n) + 1)
    return low, np.asarray(binom.pmf(counts, n, p))


def _trim(start: int, alive: Floats) -> tuple[int, Floats]:
    """Drop what has become negligible at either end, so that the work follows the spread and not the sample size."""
    heavy = np.flatnonzero(alive > _NEGLIGIBLE / 1e3)
    if len(heavy) == 0:
        return start, alive[:1] * 0
    return start + int(heavy[0]), alive[heavy[0] : heavy[-1] + 1]
