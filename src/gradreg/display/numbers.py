"""Numbers in words: how fractions and distances are written wherever a person reads them."""

import math
from collections.abc import Sequence


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


def distance_name(threat: str, distance: float, in_255: bool | None = None) -> str:
    """A distance in the threat's unit: counted in 1/255, or as it is; default: l∞ distances are counted."""
    counted = threat == "linf" if in_255 is None else in_255
    return f"{significant(255 * distance)}/255" if counted else significant(distance)


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
