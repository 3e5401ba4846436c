"""How each figure is drawn, with matplotlib's objects and none of its global state.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; each model has a marker of its own besides.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradreg.evaluation.record import STANDARD_RADII, Evaluation
from gradreg.norms import ThreatName
from gradreg.report.curves import Curve, curves, frontier, gaps, histogram
from gradreg.report.numbers import THREAT_SIGNS, radius_name

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.4
"""Inches: the width of a column of a two-column page."""

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
_LINES: dict[str, Any] = {"empirical": "-", "omega-bound": (0, (4, 1.5)), "certified": (0, (1, 1.2))}
_KIND_NAMES = {"empirical": "attacks", "omega-bound": "ω-bound (heuristic)", "certified": "smoothed, certified"}
_GUIDE = "#b5b5b5"
_LONGEST_NAME = 36


def error_against_distance(evaluations: Sequence[Evaluation], threat: ThreatName) -> "Figure":
    """Figures 1 and 2 of the paper: the share of images that fail within a distance."""
    found = [curve for curve in curves(evaluations) if curve.threat == threat]
    figure = _figure(COLUMN, 2.25)
    axes = figure.add_subplot()
    end = _end(found, threat)
    names = _names(evaluations)
    for curve in found:
        _draw_curve(axes, curve, list(names).index(curve.model), end)
    for radius in STANDARD_RADII[threat]:
        if radius < end:
            axes.axvline(radius, color=_GUIDE, linewidth=0.5, zorder=0)
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(f"{THREAT_SIGNS[threat]} distance")
    axes.set_ylabel("error")
    _as_percent(axes, "y")
    _as_distance(axes, "x", threat, end)
    kinds = [kind for kind in _LINES if any(curve.kind == kind for curve in found)]
    _legend(figure, [*_model_handles(names, "-"), *_kind_handles(kinds)])
    return figure


def trade_off(evaluations: Sequence[Evaluation], threats: Sequence[ThreatName]) -> "Figure":
    """What robustness costs in clean error and training time, at the second of the usual radii."""
    figure, panels = _panels(len(threats), 2.5)
    found, names = frontier(evaluations), _names(evaluations)
    for axes, threat in zip(panels, threats, strict=True):
        radius = STANDARD_RADII[threat][1]
        points = [point for point in found if (point.threat, point.radius) == (threat, radius)]
        for point in points:
            place = (point.clean_error, point.robust_error)
            axes.plot(*place, **_marker(list(names).index(point.model), 5.5), linestyle="none", clip_on=False)
            if point.cost_ratio is not None:
                axes.annotate(f"{point.cost_ratio:.2g}×", place, (5, 3), textcoords="offset points", fontsize=6)
        if any(point.cost_ratio is not None for point in points):
            axes.set_title("beside a model: its training time × undefended", fontsize=6, loc="left")
        axes.set_xlim(0, 1.2 * max(point.clean_error for point in points) or 1)
        axes.set_ylim(0, 1.05)
        axes.set_xlabel("clean error")
        axes.set_ylabel(f"error at {THREAT_SIGNS[threat]} {radius_name(radius)}")
        _as_percent(axes, "x")
        _as_percent(axes, "y")
    _legend(figure, _model_handles(names, "none"))
    return figure


def distances(evaluations: Sequence[Evaluation], threats: Sequence[ThreatName]) -> "Figure":
    """A histogram of adversarial distances for each model and threat, on one scale a threat."""
    names = _names(evaluations)
    figure = _figure(COLUMN * len(threats), 0.85 * len(names) + 0.5)
    grid = figure.subplots(len(names), len(threats), squeeze=False, sharex="col", sharey="col")
    for axes in grid.flat:
        axes.set_axis_off()
    for column, threat in enumerate(threats):
        for found in histogram(evaluations, threat):
            row = list(names).index(found.model)
            axes = grid[row][column]
            axes.set_axis_on()
            heights = [count / found.n for count in found.counts]
            axes.stairs(heights, found.edges, fill=True, color=_COLOURS[row % len(_COLOURS)], alpha=0.85)
            others = f"not shown: {found.misclassified} misclassified, {found.unbroken} unbroken of {found.n} images"
            axes.set_title(f"{names[found.model]}\n{others}", fontsize=6, loc="left", pad=2)
            axes.set_xlim(0, found.edges[-1])
            axes.set_ylabel("images")
            _as_percent(axes, "y")
            _as_distance(axes, "x", threat, found.edges[-1])
        grid[-1][column].set_xlabel(f"{THREAT_SIGNS[threat]} distance of the nearest adversarial image found")
    return figure


def bounds_against_distances(evaluations: Sequence[Evaluation], threats: Sequence[ThreatName]) -> "Figure":
    """A dot an image: its ω-bound against its distance. Above the diagonal the bound is violated."""
    figure, panels = _panels(len(threats), 3.0)
    found, names = gaps(evaluations), _names(evaluations)
    for axes, threat in zip(panels, threats, strict=True):
        drawn = [gap for gap in found if gap.threat == threat and gap.distance]
        values = [value for gap in drawn for value in (*gap.distance, *gap.omega) if value > 0] or [0.1, 1.0]
        low, high = min(values) / 1.5, max(values) * 1.5
        for gap in drawn:
            # A bound of 0 has no place on this scale; it is drawn on the edge.
            bound = [max(value, low) for value in gap.omega]
            marker = _marker(list(names).index(gap.model), 2.6)
            axes.plot(gap.distance, bound, **marker, linestyle="none", alpha=0.55, clip_on=False)
        axes.plot([low, high], [low, high], color=_GUIDE, linewidth=0.8, zorder=0)
        axes.fill_between([low, high], [low, high], high, color="#f0f0f0", linewidth=0, zorder=-1)
        axes.annotate("violated", (0.04, 0.93), xycoords="axes fraction", fontsize=6.5, color="#555555")
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        axes.set_xlabel(f"{THREAT_SIGNS[threat]} distance of the nearest adversarial image found")
        axes.set_ylabel("ω-bound (heuristic)")
        _as_decades(axes)
    _legend(figure, _model_handles(names, "none"))
    return figure


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _panels(count: int, height: float) -> tuple["Figure", "list[Axes]"]:
    figure = _figure(COLUMN * count, height)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _draw_curve(axes: "Axes", curve: Curve, index: int, end: float) -> None:
    x, y = list(curve.x), list(curve.y)
    solid = curve.kind == "empirical"
    if solid:
        x, y = [*x, max(end, x[-1])], [*y, y[-1]]
    axes.step(
        x,
        y,
        where="post",
        linestyle=_LINES[curve.kind],
        linewidth=1.3 if solid else 0.9,
        color=_COLOURS[index % len(_COLOURS)],
    )
    if solid:
        # At levels of error of its own, so that the markers of two models seldom meet.
        levels = [curve.y[0] + (curve.y[-1] - curve.y[0]) * (k + 0.15 + 0.14 * (index % 6)) / 4 for k in range(4)]
        at = [next(place for place in zip(curve.x, curve.y, strict=True) if place[1] >= level) for level in levels]
        axes.plot(*zip(*at, strict=True), **_marker(index, 3.4), linestyle="none")


def _end(found: Sequence[Curve], threat: ThreatName) -> float:
    """Where the picture stops: when 98 % of what the attacks ever broke is broken, and not before the usual radii."""
    broken = [
        next(x for x, y in zip(curve.x, curve.y, strict=True) if y >= 0.98 * curve.y[-1])
        for curve in found
        if curve.kind == "empirical"
    ]
    return max([1.15 * STANDARD_RADII[threat][-1], *broken])


def _names(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """Each model's name as it can be drawn: no formulas, no signs that the font lacks, not too long."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont("DejaVu Sans")).get_charmap()
    drawn = {}
    for name in (evaluation.subject.name for evaluation in evaluations):
        plain = "".join(sign if sign.isprintable() and ord(sign) in known else "?" for sign in name)
        short = plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 9]}…{plain[-8:]}"
        drawn[name] = short.replace("$", r"\$")
    return drawn


def _marker(index: int, size: float) -> dict[str, Any]:
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "markersize": size,
        "markeredgewidth": 0,
    }


def _model_handles(names: dict[str, str], line: Any) -> "list[Artist]":
    from matplotlib.lines import Line2D

    return [Line2D([], [], **_marker(i, 4), linestyle=line, label=name) for i, name in enumerate(names.values())]


def _kind_handles(kinds: Sequence[str]) -> "list[Artist]":
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color="#333333", linestyle=_LINES[kind], linewidth=1.1, label=_KIND_NAMES[kind])
        for kind in kinds
    ]


def _legend(figure: "Figure", handles: "list[Artist]") -> None:
    """Below the axes, where it covers nothing; the figure grows by its height."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(figure.get_figwidth() * 16 / (longest + 6))))
    rows = math.ceil(len(handles) / columns)
    figure.set_figheight(figure.get_figheight() + 0.14 * rows + 0.1)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.2, columnspacing=1.2)


def _as_percent(axes: "Axes", which: str) -> None:
    from matplotlib.ticker import FuncFormatter

    getattr(axes, f"{which}axis").set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def _as_distance(axes: "Axes", which: str, threat: ThreatName, end: float) -> None:
    """l∞ distances in steps of pixel values."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    if threat != "linf":
        return
    step = next((step for step in (1, 2, 4, 8, 16, 32) if end * 255 / step <= 7), 64)
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(MultipleLocator(step / 255))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{round(255 * x)}/255" if x else "0"))


def _as_decades(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        axis.set_minor_formatter(NullFormatter())
