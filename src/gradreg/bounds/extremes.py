"""The generalized extreme value distribution (GEV) of block maxima, and its upper quantile.

P(M ≤ z) = exp(−(1 + ξ(z − μ)/σ)^(−1/ξ)), with the textbooks' sign of ξ: ξ > 0 is the heavy tail. scipy's
`genextreme` has c = −ξ. The paper takes the quantile that a block's maximum exceeds with probability p = 0.001 (§2.2).
"""

from dataclasses import dataclass
from math import isfinite, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gradreg.bounds.errors import BoundsError
from gradreg.checks.scalars import check_choice, check_integer, check_number, shown
from gradreg.errors import ConfigError
from gradreg.extras import need

Floats = NDArray[np.float64]
FitMethod = Literal["lmoments", "mle"]

MIN_BLOCKS = 20
_MOST_REFITS = 100_000  # more do not fit into memory, nor change the limit
_STEEP = 0.5  # beyond it a quantile rests on the shape more than on the data
_SPREAD = 1e-12  # of the largest entry; a smaller spread is rounding
_EULER = 0.5772156649015329


@dataclass(frozen=True)
class GEV:
    """Location μ, scale σ and shape ξ of any number of fits."""

    location: Floats
    scale: Floats
    shape: Floats

    def quantile(self, p: float) -> Floats:
        """The value exceeded with probability p: μ + σ((−log(1 − p))^(−ξ) − 1)/ξ, and its limit at ξ = 0."""
        p = check_number("p", p, above=0, below=1)
        return self.location + self.scale * _standard_quantile(self.shape, np.array(-np.log1p(-p)))


@dataclass(frozen=True)
class ExtremeValue:
    """An upper quantile of block maxima, with what it was estimated from.

    Flags: "steep" (|ξ| > 0.5), "few-distinct" (less than 20 different maxima), "degenerate" (all the same: the value is
    theirs), "infinite" (so is the value), "mle-failed" (the L-moment fit stands in).
    """

    value: float
    upper: float
    """The 95 % upper limit of `value` by parametric bootstrap: the estimate alone is too low half of the time."""
    shape: float
    largest: float
    p: float
    block_size: int
    blocks: int
    method: FitMethod
    flags: tuple[str, ...]


def extreme_value(
    maxima: Floats,
    block_size: int,
    *,
    p: float = 0.001,
    method: FitMethod = "lmoments",
    bootstrap: int = 500,
    seed: int = 0,
) -> ExtremeValue:
    """The value that the maximum of a block exceeds with probability p; never below the largest one seen."""
    p = check_number("p", p, above=0, below=1, usual="the probability of exceeding the estimate; 0.001 is usual")
    check_choice("method", method, ("lmoments", "mle"))
    block_size, seed = check_integer("block_size", block_size, least=1), check_integer("seed", seed, least=0)
    bootstrap = check_integer("bootstrap", bootstrap, least=1, ends=_MOST_REFITS)
    maxima = _floats("maxima", maxima, nan=True)
    if maxima.ndim != 1 or len(maxima) < 3:
        raise BoundsError(f"A GEV fit needs at least 3 block maxima; got {maxima.size}. Use more blocks.")
    largest, spread = float(maxima.max()), float(np.ptp(maxima)) if np.isfinite(maxima).all() else np.inf
    flags = ["few-distinct"] if len(np.unique(maxima)) < MIN_BLOCKS else []

    def answer(value: float, upper: float, shape: float, *more: str) -> ExtremeValue:
        return ExtremeValue(value, upper, shape, largest, p, block_size, len(maxima), method, (*flags, *more))

    if not isfinite(spread):
        return answer(np.inf, np.inf, np.nan, "infinite")
    if spread <= _SPREAD * np.abs(maxima).max():
        return answer(largest, largest, 0.0, "degenerate")
    # Everything below happens to standardised maxima: a fit is then the same for the same data in other units.
    # (By the mean deviation: squares of large or small units would overflow or vanish.)
    centre = float(maxima.mean())
    unit = float(np.abs(maxima - centre).mean())
    standard = (maxima - centre) / unit
    fit = fit_lmoments(standard)
    if method == "mle":
        better = _fit_mle(standard, fit)
        flags += [] if better else ["mle-failed"]
        fit = better or fit
    value = max(largest, centre + unit * float(fit.quantile(p)))
    limit = float(np.quantile(_refits(fit, len(maxima), bootstrap, seed).quantile(p), 0.95))
    return answer(
        value,
        max(value, centre + unit * limit),
        float(fit.shape),
        *(["steep"] if abs(float(fit.shape)) > _STEEP else []),
    )


def fit_lmoments(maxima: Floats) -> GEV:
    """L-moment fits of all rows of (…, n) at once, in closed form (Hosking, Wallis & Wood 1985); needs ξ < 1."""
    need("scipy", "An extreme value fit")
    from scipy.special import gammaln

    maxima = _floats("maxima", maxima)
    n = maxima.shape[-1] if maxima.ndim else 0
    if n < 3:
        raise BoundsError(f"A GEV fit needs at least 3 block maxima; got {n}. Use more blocks.")
    rank = np.arange(n)
    # Probability-weighted moments b0, b1, b2 as one product with the order statistics.
    weights = np.stack([np.ones(n), rank / (n - 1), rank * (rank - 1) / ((n - 1) * (n - 2))], axis=-1) / n
    b0, b1, b2 = np.moveaxis(np.sort(maxima, axis=-1) @ weights, -1, 0)
    l1, l2, l3 = b0, 2 * b1 - b0, 6 * b2 - 6 * b1 + b0
    if not np.all(l2 > 0):
        raise BoundsError("A GEV fit needs block maxima that differ and are finite; got some that do not.")
    c = 2 / (3 + l3 / l2) - log(2) / log(3)
    k = 7.8590 * c + 2.9554 * c**2
    gumbel = np.abs(k) < 1e-9
    k = np.where(gumbel, 1e-9, k)
    scale = l2 * k / (np.exp(gammaln(1 + k)) * -np.expm1(-k * log(2)))
    mean_shift = np.where(gumbel, _EULER, -np.expm1(gammaln(1 + k)) / k)
    return GEV(l1 - scale * mean_shift, scale, -k)


def block_maxima(values: Floats, block_size: int) -> Floats:
    """Maxima over consecutive blocks of the last axis; what does not fill a block is left out."""
    values, block_size = _floats("values", values), check_integer("block_size", block_size, least=1)
    images = values.shape[-1] if values.ndim else 0
    blocks = images // block_size
    if blocks < MIN_BLOCKS:
        raise BoundsError(
            f"{images} images make {blocks} blocks of {block_size}, too few for an extreme value fit: pass at least "
            f"{MIN_BLOCKS * block_size} images, or block_size={max(images // MIN_BLOCKS, 1)}."
        )
    used = values[..., : blocks * block_size]
    maxima: Floats = used.reshape(*values.shape[:-1], blocks, block_size).max(axis=-1)
    return maxima


def _floats(name: str, values: Floats, *, nan: bool = False) -> Floats:
    """`values` as an array of floats; NaN is refused unless it is flagged where it is used."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        found = None
    if found is None or (np.isnan(found).any() and not nan):
        raise ConfigError(f"{name} must be an array of numbers, none of them NaN; got {shown(values)}.")
    return found


def _fit_mle(standard: Floats, start: GEV) -> GEV | None:
    """Maximum likelihood by Nelder-Mead from the L-moment fit, or from the Gumbel fit if data lie outside its support.

    ξ is kept in (−1, 1): below −1 the likelihood has no maximum, above 1 the distribution has no mean.
    """
    from scipy.optimize import minimize

    def cost(parameters: Floats) -> float:
        location, log_scale, shape = parameters
        if abs(shape) >= 1:
            return np.inf
        z = (standard - location) * np.exp(-log_scale)
        inside = 1 + shape * z
        if inside.min() <= 0:
            return np.inf
        log_term = z if abs(shape) < 1e-9 else np.log(inside) / shape
        return float(len(z) * log_scale + ((1 + shape) * log_term + np.exp(-log_term)).sum())

    gumbel_scale = float(standard.std()) * np.sqrt(6) / np.pi
    starts = [
        np.array([float(start.location), np.log(float(start.scale)), float(start.shape)]),
        np.array([-_EULER * gumbel_scale, np.log(gumbel_scale), 0.0]),
    ]
    with np.errstate(over="ignore"):
        first = next((guess for guess in starts if np.isfinite(cost(guess))), None)
        if first is None:
            return None
        found = minimize(cost, first, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8, "maxiter": 2000})
    if not found.success or not np.isfinite(found.fun) or abs(found.x[2]) > 0.99:
        return None  # at the edge of what is allowed there is no maximum
    location, log_scale, shape = found.x
    return GEV(np.array(location), np.exp(np.array(log_scale)), np.array(shape))


def _refits(fit: GEV, n: int, times: int, seed: int) -> GEV:
    """L-moment fits of `times` samples drawn from the fit, in the fit's own units."""
    draws = -np.log(np.random.Generator(np.random.Philox(seed)).uniform(np.finfo(float).tiny, 1, (times, n)))
    return fit_lmoments(fit.location + fit.scale * _standard_quantile(fit.shape, draws))


def _standard_quantile(shape: Floats, y: Floats) -> Floats:
    """(y^(−ξ) − 1)/ξ without cancellation near ξ = 0, where it is −log y."""
    log_y = np.log(y)
    safe = np.where(shape == 0, 1.0, shape)
    return np.where(shape == 0, -log_y, np.expm1(-safe * log_y) / safe)
