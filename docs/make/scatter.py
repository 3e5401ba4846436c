"""The figure of the shoot-out: robust against clean accuracy of every method, and what it costs."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import pi, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from docs.make.shootout import BASE, ranked
from docs.make.verdicts import Method, Verdict
from gradreg.display.plot import COLOURS, GUIDE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in points."""

_OURS = ("noisy", "noisy-slope", "noisy-second", "penalty")
# Its robust accuracy is 0, far below all the others'.
_LEFT_OUT = ("undefended",)
_SIZE = 6.5
# Of a letter in this size, in points.
_LETTER, _LINE = 3.8, 8.0
_SMALLEST, _LARGEST = 10.0, 260.0
_FAR = 1e4
# Percentage points along either axis: on a shorter one a difference within chance would look like one that matters.
_LEAST_SPAN = 6.0


def draw_shootout(verdicts: Sequence[Verdict], file: Path) -> Path:
    """The figure, as SVG, PNG or PDF by the file's ending."""
    from gradreg.report.charts.files import draw_one

    return draw_one(partial(scatter, verdicts), [file])[0]


def scatter(verdicts: Sequence[Verdict]) -> "Figure":
    """A disc per method whose area is the time of training; lines through adversarial training."""
    methods = [each for each in ranked(verdicts) if each.name not in _LEFT_OUT]
    base = next((each for each in methods if each.name == BASE), None)
    figure = new_figure(5.6, 3.4)
    axes = figure.subplots()
    axes.grid(color=GUIDE, linewidth=0.3, alpha=0.6)
    if base is not None:
        x, y = _place(base)
        axes.axvline(x, color=GUIDE, linewidth=0.8, zorder=1)
        axes.axhline(y, color=GUIDE, linewidth=0.8, zorder=1)
    times = {each.name: each.step_time or 0.0 for each in methods}
    longest = max(times.values()) or 1.0
    areas = {name: _SMALLEST + (_LARGEST - _SMALLEST) * each / longest for name, each in times.items()}
    for method in methods:
        colour = COLOURS[1] if method.name in _OURS else COLOURS[0]
        axes.scatter(*_place(method), s=areas[method.name], color=colour, alpha=0.6, linewidths=0, zorder=2)
    axes.margins(0.13)
    axes.set_xlim(*_widened(*axes.get_xlim()))
    axes.set_ylim(*_widened(*axes.get_ylim()))
    axes.set_xlabel("clean accuracy, %")
    axes.set_ylabel("robust accuracy at l∞ 8/255, %")
    legend = "area and ×: time of all training steps, over that of AT; orange: the penalty; lines: AT"
    figure.suptitle(legend, fontsize=6, x=0.02, ha="left")
    # Where discs are on the paper is known once the frame has its place.
    figure.draw_without_rendering()
    _label(axes, methods, base, {name: sqrt(area / pi) for name, area in areas.items()})
    return figure


def beside(x: float, y: float, away: float, width: float, taken: Iterable[_Box]) -> _Box:
    """Where a label of that width is drawn: right of a point, left, above or below, where it covers least."""
    half = _LINE / 2
    places = (
        (x + away, y - half, x + away + width, y + half),
        (x - away - width, y - half, x - away, y + half),
        (x - width / 2, y + away, x + width / 2, y + away + _LINE),
        (x - width / 2, y - away - _LINE, x + width / 2, y - away),
    )
    known = list(taken)
    return min(places, key=lambda place: sum(_overlap(place, other) for other in known))


def _label(axes: "Axes", methods: Sequence[Method], base: Method | None, radii: dict[str, float]) -> None:
    scale = 72 / axes.figure.dpi
    centres = {each.name: scale * axes.transData.transform(_place(each)) for each in methods}
    taken: list[_Box] = [
        (x - radii[name], y - radii[name], x + radii[name], y + radii[name]) for name, (x, y) in centres.items()
    ]
    left, bottom, right, top = scale * axes.bbox.x0, scale * axes.bbox.y0, scale * axes.bbox.x1, scale * axes.bbox.y1
    # What is outside of the frame counts as covered.
    taken += [
        (-_FAR, -_FAR, left, _FAR),
        (right, -_FAR, _FAR, _FAR),
        (left, -_FAR, right, bottom),
        (left, top, right, _FAR),
    ]
    for method in methods:
        ratio = None if base is None else method.time_over(base)
        text = method.name if ratio is None else f"{method.name} {ratio:.2f}×"
        x, y = centres[method.name]
        box = beside(x, y, radii[method.name] + 1.5, _LETTER * len(text), taken)
        taken.append(box)
        middle = ((box[0] + box[2]) / 2 - x, (box[1] + box[3]) / 2 - y)
        axes.annotate(
            text, _place(method), middle, textcoords="offset points", ha="center", va="center", fontsize=_SIZE, zorder=3
        )


def _widened(low: float, high: float) -> tuple[float, float]:
    more = max(0.0, _LEAST_SPAN - (high - low)) / 2
    return low - more, high + more


def _overlap(first: _Box, second: _Box) -> float:
    wide = min(first[2], second[2]) - max(first[0], second[0])
    high = min(first[3], second[3]) - max(first[1], second[1])
    return max(wide, 0.0) * max(high, 0.0)


def _place(method: Method) -> tuple[float, float]:
    return 100 * float(method.clean.mean()), 100 * float(method.robust.mean())
