"""A chart as data: axes, series, guides, legend and words. `svg` and `plot` draw any chart from this alone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gradreg.display.numbers import distance_name, percent

_Kind = Literal["steps", "line", "dots", "marks", "bars", "across"]
"""Step function, straight line, one dot per image, the model's marker, upright bars, bars from left to right."""
Look = Literal["solid", "dash-dotted", "dashed", "dotted", "hollow"]


@dataclass(frozen=True)
class Axis:
    """What is measured along it, from where to where, and the values that are marked."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    say: Callable[[float], str] = str
    """A value in words, with its unit."""
    log: bool = False
    grid: bool = True

    def at(self, value: float) -> float:
        """The place of a value, 0 at the low end and 1 at the high end; below a logarithmic axis it is the low end."""
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True)
class Series:
    """Points that are drawn in the same way."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    kind: _Kind
    model: int | None = None
    """The model's number, which decides colour and marker; None is drawn without colour."""
    look: Look = "solid"
    ends: bool = False
    """Nothing is known beyond the last step, as for bounds; else a step function goes on to the end of the axis."""
    labels: Sequence[str] = ()
    """What is written beside each point."""
    size: float = 1.0
    edges: Sequence[float] = ()
    """Upright bar i is between edges i and i + 1."""
    silent: bool = False
    """It has no values to be read out."""


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    name: str
    model: int | None
    look: Look = "solid"
    line: bool = True


@dataclass(frozen=True)
class Chart:
    """One pair of axes with what is drawn in them."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    alt: str
    """What it shows, for readers who do not see it."""
    note: str = ""
    """A second line under the title."""
    between: str = "at"
    """A point is read out as "y between x"."""
    guides: tuple[tuple[float, str], ...] = ()
    """Values of x that are marked by upright lines."""
    legend: tuple[Key, ...] = ()
    height: float = 300.0
    width: float = 420.0
    """In the drawing's own units; at a phone's width a unit of 420 is a little less than a pixel."""
    threat: str = ""
    """The norm that it is about, by name; empty for none or several."""
    narrow: "Chart | None" = None
    """The same for a phone, where a wide drawing would be too small to read."""

    @property
    def models(self) -> set[int]:
        """The numbers of the models that are drawn."""
        return {series.model for series in self.series if series.model is not None}


@dataclass(frozen=True)
class Group:
    """Charts shown together, under a heading unless it is empty."""

    title: str
    charts: tuple[Chart, ...]
    folded: bool = False
    """Shown when it is asked for."""


@dataclass(frozen=True)
class Figure:
    """Charts in rows that are one file; the height of a row is in inches."""

    name: str
    rows: tuple[tuple[Chart | None, ...], ...]
    height: float


def vertices(series: Series, x: Axis) -> list[tuple[float, float]]:
    """The corners of a line, or of a step function that is cut off where the axis ends."""
    points = list(zip(series.x, series.y, strict=True))
    if series.kind != "steps":
        return points
    inside = [point for point in points if point[0] <= x.high]
    corners = inside[:1]
    for a, b in inside[1:]:
        corners += [(a, corners[-1][1]), (a, b)]
    if inside and (len(inside) < len(points) or not series.ends):
        corners.append((x.high, corners[-1][1]))
    return corners


def bars(series: Series) -> list[tuple[float, float, float]]:
    """Each upright bar that has a height, from, to and how high."""
    edges = zip(series.edges, series.edges[1:], series.y, strict=False)
    return [(low, high, height) for low, high, height in edges if height]


def legend_of(charts: Sequence[Chart]) -> list[Key]:
    """One legend for several charts, models first."""
    keys = dict.fromkeys(key for chart in charts for key in chart.legend)
    return sorted(keys, key=lambda key: (key.model is None, key.model or 0))


def linear(label: str, high: float, say: Callable[[float], str], unit: float = 1.0, most: int = 6) -> Axis:
    """From 0 to `high`, with round ticks in multiples of `unit`."""
    step = _round_step(high / unit, most)
    count = math.floor(high / unit / step * (1 + 1e-9))
    return Axis(label, 0.0, high, tuple((i * step * unit, f"{i * step:g}") for i in range(count + 1)), say)


def _round_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 2.5, 5 · 10^k that divides `span` into at most that many parts."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(part * power for part in (1, 2, 2.5, 5, 10) if part * power * most >= span * (1 - 1e-9))


def distances(
    threat: str, symbol: str, high: float, label: str = "distance", low: float = 0.0, in_255: bool | None = None
) -> Axis:
    """Of a perturbation, counted in 1/255 or as it is (default: l∞ is counted); logarithmic if `low` is above 0."""
    counted = threat == "linf" if in_255 is None else in_255
    unit, suffix = (1 / 255, ", in 1/255") if counted else (1.0, "")
    label = f"{symbol} {label}{suffix}"

    def say(value: float) -> str:
        return distance_name(threat, value, counted)

    if not low:
        return linear(label, high, say, unit)
    parts = (1, 3) if high > 8 * low else (1, 2, 3, 4, 5, 6, 7, 8, 9)
    decades = range(math.floor(math.log10(low / unit)), math.ceil(math.log10(high / unit)))
    marked = [part * 10.0**power for power in decades for part in parts]
    ticks = tuple((value * unit, f"{value:g}") for value in marked if low <= value * unit <= high)
    return Axis(label, low, high, ticks, say, log=True)


def fractions(label: str, low: float = 0.0, high: float = 1.0) -> Axis:
    """Of images, in per cent: from a round figure at or below `low` to one at or above `high`, within 0 and 100 %."""
    # Six images of a thousand fill no axis: what is closer together than that is not told apart by the eye either.
    short = max(0.0, 0.02 - (high - low)) / 2
    low, high = max(0.0, low - short), min(1.0, high + short)
    step = _round_step(100 * (high - low), 5)
    first, last = math.floor(100 * low / step + 1e-9), min(math.ceil(100 * high / step - 1e-9), math.floor(100 / step))
    ticks = tuple((i * step / 100, f"{i * step:g}") for i in range(first, last + 1))
    return Axis(f"{label}, %", ticks[0][0], max(ticks[-1][0], high), ticks, percent)


def counts(label: str, high: float) -> Axis:
    """Of images; ticks are whole numbers."""
    axis = linear(label, high, lambda value: f"{value:,.0f}", most=5)
    return Axis(label, 0.0, high, tuple(tick for tick in axis.ticks if tick[0] == round(tick[0])), axis.say)


def categories(names: Sequence[str]) -> Axis:
    """Names from top to bottom."""
    return Axis("", len(names) - 0.5, -0.5, tuple(enumerate(names)), lambda at: names[round(at)], grid=False)
