"""When an image has been sampled enough, and the radius its count is worth: Cohen's rule and the sequential one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gradreg.errors import ConfigError
from gradreg.smoothing.intervals import certified_radius, clopper_pearson_lower, randomized_lower, required_probability
from gradreg.smoothing.sequential import Plan, make_plan

Floats = NDArray[np.float64]

# Without given radii the grid is multiples of σ/16, and sampling ends when at most σ/4 more can be expected.
_FINE_STEP, _SLACK = 1 / 16, 3
_CHUNK = 10_000
# Of the draw that randomises a limit.
_LEAST = 0.1


class Rule(Protocol):
    """Sees an image's hits after each stage; `best` is its memory, the index of the largest radius held so far."""

    sizes: tuple[int, ...]
    """Samples drawn by the end of each stage, selection aside."""

    def look(self, stage: int, hits: int, best: int) -> tuple[int, bool]:
        """The new `best`, −1 for none, and whether the image is finished."""

    def radius(self, hits: Floats, best: Floats, uniform: Floats) -> Floats:
        """Radii of finished images; negative: abstain. `uniform` is a draw from [0, 1] per image."""


@dataclass(frozen=True)
class Cohen:
    """All n samples, then a Clopper-Pearson limit (Cohen et al. 2019, CERTIFY); stages only so that work can resume.

    `randomized`: the limit that fails with probability α exactly, not at most.
    """

    sizes: tuple[int, ...]
    sigma: float
    alpha: float
    topk: int
    radii: Floats | None
    randomized: bool = False

    def look(self, stage: int, hits: int, best: int) -> tuple[int, bool]:
        return best, stage == len(self.sizes) - 1

    def radius(self, hits: Floats, best: Floats, uniform: Floats) -> Floats:
        n = self.sizes[-1]
        # A larger u is a lower limit, so a least one is safe. Without, one image in 1/α could have an infinite radius.
        least = min(1.0, max(_LEAST, 2 * self.alpha))
        limit = (
            randomized_lower(hits, n, self.alpha, np.maximum(uniform, least))
            if self.randomized
            else clopper_pearson_lower(hits, n, self.alpha)
        )
        exact = certified_radius(limit, self.sigma, self.topk)
        exact = np.where(exact > 0, exact, -1.0)
        return exact if self.radii is None else _at_index(self.radii, np.searchsorted(self.radii, exact, "right") - 1)


@dataclass(frozen=True)
class Sequential:
    """Stop as soon as the largest radius that holds is known; see `sequential`."""

    plan: Plan
    radii: Floats
    slack: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.plan.looks)

    def look(self, stage: int, hits: int, best: int) -> tuple[int, bool]:
        best = max(best, int(np.count_nonzero(hits >= self.plan.reject[:, stage])) - 1)
        last = len(self.radii) - 1
        hopeless = best == last or hits <= self.plan.give_up[min(best + 1 + self.slack, last), stage]
        return best, bool(hopeless) or stage == len(self.plan.looks) - 1

    def radius(self, hits: Floats, best: Floats, uniform: Floats) -> Floats:
        return _at_index(self.radii, best)


def cohen(sigma: float, alpha: float, n: int, topk: int, radii: Floats | None) -> Cohen:
    """Cohen's rule; refused where n is too small to certify anything, which would look like a weak model."""
    if float(clopper_pearson_lower(n, n, alpha)) <= required_probability(0.0, sigma, topk):
        raise _too_few(n, alpha)
    sizes = (*range(_CHUNK, n, _CHUNK), n)
    return Cohen(sizes, sigma, alpha, topk, radii)


def sequential(sigma: float, alpha: float, n: int, topk: int, radii: Floats | None) -> Sequential:
    """The sequential rule. Radii out of reach of n samples are left out: waiting for them would cost every image n."""
    reach = float(certified_radius(clopper_pearson_lower(n, n, alpha), sigma, topk))
    grid = np.arange(0, max(reach, 0), _FINE_STEP * sigma) if radii is None else radii[radii < reach]
    if len(grid) == 0:
        raise _too_few(n, alpha)
    plan = make_plan(required_probability(grid, sigma, topk), n, alpha)
    kept = plan.reachable
    if not kept.any():
        raise _too_few(n, alpha)
    return Sequential(
        Plan(plan.looks, plan.reject[kept], plan.give_up[kept]), grid[kept], _SLACK if radii is None else 0
    )


def check_samples(sigma: float, alpha: float, n: int, topk: int, radii: Sequence[float] | None, method: str) -> None:
    """Refuse an n too small for the smallest of the radii, in a moment: all boundaries would take seconds."""
    smallest = np.array([0.0] if radii is None else radii[:1])
    (cohen if method == "cohen" else sequential)(sigma, alpha, n, topk, smallest)


def _too_few(n: int, alpha: float) -> ConfigError:
    return ConfigError(
        f"n = {n} samples cannot certify any of the radii at α = {alpha:g}, even if all of them agree: "
        "raise n (100,000 is usual), or pass smaller radii."
    )


def _at_index(radii: Floats, index: NDArray[np.int64] | Floats) -> Floats:
    index = index.astype(int)
    return np.where(index >= 0, radii[np.maximum(index, 0)], -1.0)
