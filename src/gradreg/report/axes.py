"""From values to places on a drawing: axes with round ticks, and how their values are read out."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gradreg.norms import ThreatName
from gradreg.report.numbers import THREAT_SIGNS, significant

# A drawing is this large in its own units; at a phone's width a unit is a little less than a pixel.
WIDTH, HEIGHT = 420.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 14.0, 34.0, 44.0


@dataclass(frozen=True)
class Axis:
    """What is measured along it, up to where, and the places that are named."""

    label: str
    high: float
    ticks: tuple[tuple[float, str], ...]
    say: Callable[[float], str]
    """A value in words, with its unit."""
    low: float = 0.0

    def across(self, value: float) -> float:
        """The place of a value from left to right."""
        return LEFT + (value - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)

    def up(self, value: float) -> float:
        """The place of a value from bottom to top; drawings count from the top."""
        return HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def round_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 2.5, 5 · 10^k that divides `span` into at most that many parts."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(part * power for part in (1, 2, 2.5, 5, 10) if part * power * most >= span * (1 - 1e-9))


def linear(label: str, high: float, say: Callable[[float], str], unit: float = 1.0, most: int = 6) -> Axis:
    """From 0 to `high`, with round ticks in multiples of `unit`."""
    step = round_step(high / unit, most)
    count = math.floor(high / unit / step * (1 + 1e-9))
    return Axis(label, high, tuple((i * step * unit, f"{i * step:g}") for i in range(count + 1)), say)


def distances(threat: ThreatName, high: float, label: str = "distance") -> Axis:
    """Of a perturbation; l∞ ones are counted in 1/255, as everybody does."""
    sign = THREAT_SIGNS[threat]
    if threat == "linf":
        return linear(f"{sign} {label}, in 1/255", high, lambda value: f"{significant(255 * value)}/255", unit=1 / 255)
    return linear(f"{sign} {label}", high, significant)


def shares(label: str, high: float = 1.0) -> Axis:
    """Of images, in per cent."""
    return linear(f"{label}, %", high, percent, unit=0.01, most=5)


def counts(label: str, high: float) -> Axis:
    """Of images; ticks are whole numbers."""
    axis = linear(label, high, lambda value: f"{value:,.0f}", most=5)
    return Axis(label, high, tuple(tick for tick in axis.ticks if tick[0] == round(tick[0])), axis.say)


def percent(share: float) -> str:
    """As in the tables."""
    return f"{100 * share:.1f} %"
