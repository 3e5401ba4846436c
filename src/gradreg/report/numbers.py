"""Numbers in words: how fractions, distances, radii and counts are written all over a report."""

import math
from collections.abc import Iterable, Sequence

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.shares import Share


def significant(value: float) -> str:
    """Three significant digits without an exponent where that is readable: 1234, 12.3, 0.450, 0.00123, 1.2e-05."""
    if value == 0:
        return "0"
    # Rounded first: 9.996 has as many digits before the point as 10.0.
    magnitude = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    return f"{value:.{max(2 - magnitude, 0)}f}" if -4 <= magnitude < 7 else f"{value:.1e}"


def percent(fraction: float) -> str:
    """With one decimal."""
    return f"{100 * fraction:.1f} %"


def interval(low: float, high: float) -> str:
    """Two fractions as a range of percentages."""
    return f"{100 * low:.1f}–{100 * high:.1f} %"


def ball(symbol: str, radius: float) -> str:
    """ "l∞ 8/255"."""
    return f"{symbol} {radius_name(radius)}"


def distance_name(threat: str, distance: float) -> str:
    """A distance in the threat's unit; l∞ distances are counted in 1/255."""
    return f"{significant(255 * distance)}/255" if threat == "linf" else significant(distance)


def images(counts: Iterable[int]) -> str:
    """ "n = 1000 images", or the range if models were evaluated on different numbers of images."""
    distinct = sorted(set(counts)) or [0]
    if len(distinct) == 1:
        return f"n = {distinct[0]} image{'s' if distinct[0] != 1 else ''}"
    return f"n = {distinct[0]} to {distinct[-1]} images"


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def share(hits: int, n: int) -> Share:
    """A fraction of n images with its 95 % Clopper-Pearson interval."""
    from gradreg.smoothing.intervals import clopper_pearson

    return Share(hits / n, *clopper_pearson(hits, n), n)


def clean_errors(evaluation: Evaluation) -> tuple[int, int]:
    """Misclassified images, and of how many: of the whole test set if it was evaluated, else of those attacked."""
    return evaluation.clean or (int(evaluation.wrong.sum()), len(evaluation))
