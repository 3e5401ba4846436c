"""Exact binomial limits, and the radius that a probability is worth."""

from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradreg.checks.scalars import check_integer, check_number, shown
from gradreg.errors import ConfigError
from gradreg.extras import need

Floats = NDArray[np.float64]

# Of the interval between two counts' limits; a double has 53 digits.
_HALVINGS = 60


def clopper_pearson_lower(hits: ArrayLike, n: ArrayLike, alpha: float) -> Floats:
    """The lower limit of a probability that is too high with probability α at most (Clopper & Pearson 1934)."""
    need("scipy", "A confidence interval")
    from scipy.stats import beta

    alpha = check_number("alpha", alpha, above=0, below=1)
    hits, n = _counts(hits, n)
    limit = np.asarray(beta.ppf(alpha, np.maximum(hits, 1), n - hits + 1))
    return np.where(hits == 0, 0.0, limit)


def randomized_lower(hits: ArrayLike, n: ArrayLike, alpha: float, uniform: ArrayLike) -> Floats:
    """The lower limit that is too high with probability α exactly, for `uniform` drawn from [0, 1] (Voráček 2024).

    It solves P(X > hits) + u·P(X = hits) = α for the probability. Counts are whole numbers, so that Clopper & Pearson's
    limit, which is that of u = 1, is too high less often than α, and lower than it need be. Where all samples hit and
    u ≤ α the limit is 1.
    """
    from scipy.special import betainc

    x, n = _counts(hits, n)
    try:
        x, n, u = np.broadcast_arrays(x, n, np.asarray(uniform, dtype=float))
    except (TypeError, ValueError, OverflowError, RuntimeError):
        u = np.array(np.nan)
    if not np.all((u >= 0) & (u <= 1)):
        raise ConfigError(f"uniform must be numbers from 0 to 1, one per count; got {shown(uniform)}.")
    low = clopper_pearson_lower(x, n, alpha)
    none, all_hit = x == 0, x == n
    high = np.where(all_hit, 1.0, clopper_pearson_lower(np.minimum(x + 1, n), n, alpha))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        at_least = np.where(none, 1.0, betainc(np.maximum(x, 1), n - x + 1, middle))
        more = np.where(all_hit, 0.0, betainc(x + 1, np.maximum(n - x, 1), middle))
        below = u * at_least + (1 - u) * more < alpha
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    # The lower end, so that rounding does not make a limit too high; but 1 is reached and not approached.
    return np.where(all_hit & (u <= alpha), 1.0, low)


def clopper_pearson(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The two-sided interval; (0, 1) when nothing was counted."""
    n = check_integer("n", n, least=0)
    hits = check_integer("hits", hits, least=0, most=n)
    alpha = (1 - check_number("confidence", confidence, above=0, below=1)) / 2
    low = float(clopper_pearson_lower(hits, n, alpha))
    return low, 1 - float(clopper_pearson_lower(n - hits, n, alpha))


def _counts(hits: ArrayLike, n: ArrayLike) -> tuple[Floats, Floats]:
    """Hits and samples as floats of one shape, with 0 ≤ hits ≤ n."""
    try:
        pair = np.broadcast_arrays(np.asarray(hits), np.asarray(n))
    except (TypeError, ValueError, RuntimeError):
        pair = (np.array("of other shapes"),) * 2
    # Python's integers beyond int64 and other objects have the kind O. Doubles count up to 2⁵³.
    counts = all(part.dtype.kind in "iuf" and np.all((part == np.floor(part)) & (part <= 2**53)) for part in pair)
    if not counts or not np.all((pair[0] >= 0) & (pair[0] <= pair[1])):
        raise ConfigError(f"hits must be counts from 0 to n; got {shown(hits)} of {shown(n)}.")
    return pair[0].astype(float), pair[1].astype(float)


@overload
def required_probability(radius: float, sigma: float, topk: int) -> float: ...
@overload
def required_probability(radius: Floats, sigma: float, topk: int) -> Floats: ...
def required_probability(radius: float | Floats, sigma: float, topk: int) -> float | Floats:
    """How often a class must be the answer under noise to stay among the k most frequent within `radius`.

    Moving by r takes a probability p to Φ(Φ⁻¹(p) − r/σ) at worst (Cohen et al. 2019, Thm. 1), and no more than k − 1
    others can each be as frequent while it stays above 1/(k + 1). With k = 1 that is Cohen's Φ(r/σ); it is the
    condition of Jia et al. 2020 with 1 − p for all that is known of the rivals.
    """
    need("scipy", "A certificate")
    from scipy.special import ndtr, ndtri

    probability: Floats = ndtr(np.asarray(radius) / sigma + ndtri(1 / (topk + 1)))
    return float(probability) if probability.ndim == 0 else probability


def certified_radius(probability: ArrayLike, sigma: float, topk: int) -> Floats:
    """The inverse: R = σ(Φ⁻¹(p) − Φ⁻¹(1/(k + 1))), negative where the class is not that frequent."""
    from scipy.special import ndtri

    radius: Floats = sigma * (ndtri(np.asarray(probability, dtype=float)) - ndtri(1 / (topk + 1)))
    return radius
