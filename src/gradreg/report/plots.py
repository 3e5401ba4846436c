"""How each figure is drawn, with matplotlib's objects and none of its global state."""

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Evaluation
from gradreg.norms import ThreatName
from gradreg.report.canvas import (
    COLOURS,
    COLUMN,
    GUIDE,
    drawable,
    drawn_names,
    in_decades,
    in_distances,
    in_percent,
    legend_below,
    marker_of,
    model_handles,
    new_figure,
    panels_in_a_row,
)
from gradreg.report.curves import Curve, Point, curves, frontier, gaps, histogram
from gradreg.report.numbers import STANDARD_RADII, THREAT_SIGNS
from gradreg.report.seeds import by_recipe

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES: dict[str, Any] = {"empirical": "-", "omega-bound": (0, (4, 1.5)), "certified": (0, (1, 1.2))}
_KIND_NAMES = {"empirical": "attacks", "omega-bound": "ω-bound (heuristic)", "certified": "smoothed, certified"}


def error_against_distance(evaluations: Sequence[Evaluation], threat: ThreatName) -> "Figure":
    """Figures 1 and 2 of the paper: the share of images that fail within a distance."""
    found = [curve for curve in curves(evaluations) if curve.threat == threat]
    figure = new_figure(COLUMN, 2.25)
    axes = figure.add_subplot()
    end = _end(found, threat)
    names = drawn_names(evaluations)
    for curve in found:
        _draw_curve(axes, curve, list(names).index(curve.model), end)
    for radius in STANDARD_RADII[threat]:
        if radius < end:
            axes.axvline(radius, color=GUIDE, linewidth=0.5, zorder=0)
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(f"{THREAT_SIGNS[threat]} distance")
    axes.set_ylabel("error")
    in_percent(axes, "y")
    in_distances(axes, "x", threat, end)
    kinds = [kind for kind in _LINES if any(curve.kind == kind for curve in found)]
    legend_below(figure, [*model_handles(names, "-"), *_kind_handles(kinds)])
    return figure


def trade_off(evaluations: Sequence[Evaluation], threats: Sequence[ThreatName]) -> "Figure":
    """What robustness costs in clean error and training time, at the second of the usual radii."""
    figure, panels = panels_in_a_row(len(threats), 2.5)
    found, names = frontier(evaluations), drawn_names(evaluations)
    for axes, threat in zip(panels, threats, strict=True):
        radius = STANDARD_RADII[threat][1]
        points = [point for point in found if (point.threat, point.radius) == (threat, radius)]
        for point in points:
            place = (point.clean_error, point.robust_error)
            axes.plot(*place, **marker_of(list(names).index(point.model), 5.5), linestyle="none", clip_on=False)
            if point.cost_ratio is not None:
                axes.annotate(f"{point.cost_ratio:.2g}×", place, (5, 3), textcoords="offset points", fontsize=6)
        if any(point.cost_ratio is not None for point in points):
            axes.set_title("beside a model: its training time × undefended", fontsize=6, loc="left")
        axes.set_xlim(0, 1.2 * max(point.clean_error for point in points) or 1)
        axes.set_ylim(0, 1.05)
        axes.set_xlabel("clean error")
        axes.set_ylabel(f"error at {THREAT_SIGNS[threat]} {radius_name(radius)}")
        in_percent(axes, "x")
        in_percent(axes, "y")
    legend_below(figure, model_handles(names, "none"))
    return figure


def robustness_against_cost(evaluations: Sequence[Evaluation], threats: Sequence[ThreatName]) -> "Figure":
    """What training costs and what it buys: robust accuracy filled, clean accuracy hollow above it.

    A recipe trained with several seeds is drawn once, at their mean, with a stroke from the least to the largest.
    """
    figure, panels = panels_in_a_row(len(threats), 2.5)
    recipes, found = by_recipe(evaluations), frontier(evaluations)
    for axes, threat in zip(panels, threats, strict=True):
        radius = STANDARD_RADII[threat][1]
        points = {point.model: point for point in found if (point.threat, point.radius) == (threat, radius)}
        dearest = 1.0
        for index, recipe in enumerate(recipes):
            trained = [points[each.subject.name] for each in recipe.evaluations if each.subject.name in points]
            costs = [point.cost_ratio for point in trained if point.cost_ratio is not None]
            if costs:
                _draw_pair(axes, trained, mean(costs), index)
                dearest = max(dearest, mean(costs))
        axes.set_title("filled: robust, hollow: clean", fontsize=6, loc="left")
        axes.set(xlim=(0, 1.15 * dearest), ylim=(0, 1))
        axes.set_xlabel("training time × undefended")
        axes.set_ylabel(f"accuracy at {THREAT_SIGNS[threat]} {radius_name(radius)}")
        in_percent(axes, "y")
    legend_below(figure, model_handles(drawable(recipe.name for recipe in recipes), "none"))
    return figure


def _draw_pair(axes: "Axes", seeds: Sequence[Point], cost: float, index: int) -> None:
    look = marker_of(index, 5.5)
    hollow = look | {"markerfacecolor": "white", "markeredgecolor": look["color"], "markeredgewidth": 0.9}
    robust, clean = [1 - point.robust_error for point in seeds], [1 - point.clean_error for point in seeds]
    axes.plot([cost, cost], [mean(robust), mean(clean)], color=GUIDE, linewidth=0.6, zorder=0)
    for accuracies, marker in ((robust, look), (clean, hollow)):
        axes.plot([cost, cost], [min(accuracies), max(accuracies)], color=look["color"], linewidth=1, zorder=1)
        axes.plot(cost, mean(accuracies), **marker, linestyle="none", clip_on=False)


def distances(evaluations: Sequence[Evaluation], threats: Sequence[ThreatName]) -> "Figure":
    """A histogram of adversarial distances for each model and threat, on one scale a threat."""
    names = drawn_names(evaluations)
    figure = new_figure(COLUMN * len(threats), 0.85 * len(names) + 0.5)
    grid = figure.subplots(len(names), len(threats), squeeze=False, sharex="col", sharey="col")
    for axes in grid.flat:
        axes.set_axis_off()
    for column, threat in enumerate(threats):
        for found in histogram(evaluations, threat):
            row = list(names).index(found.model)
            axes = grid[row][column]
            axes.set_axis_on()
            heights = [count / found.n for count in found.counts]
            axes.stairs(heights, found.edges, fill=True, color=COLOURS[row % len(COLOURS)], alpha=0.85)
            others = f"not shown: {found.misclassified} misclassified, {found.unbroken} unbroken of {found.n} images"
            axes.set_title(f"{names[found.model]}\n{others}", fontsize=6, loc="left", pad=2)
            axes.set_xlim(0, found.edges[-1])
            axes.set_ylabel("images")
            in_percent(axes, "y")
            in_distances(axes, "x", threat, found.edges[-1])
        grid[-1][column].set_xlabel(f"{THREAT_SIGNS[threat]} distance of the nearest adversarial image found")
    return figure


def bounds_against_distances(evaluations: Sequence[Evaluation], threats: Sequence[ThreatName]) -> "Figure":
    """A dot an image: its ω-bound against its distance. Above the diagonal the bound is violated."""
    figure, panels = panels_in_a_row(len(threats), 3.0)
    found, names = gaps(evaluations), drawn_names(evaluations)
    for axes, threat in zip(panels, threats, strict=True):
        drawn = [gap for gap in found if gap.threat == threat and gap.distance]
        values = [value for gap in drawn for value in (*gap.distance, *gap.omega) if value > 0] or [0.1, 1.0]
        low, high = min(values) / 1.5, max(values) * 1.5
        for gap in drawn:
            # A bound of 0 has no place on this scale; it is drawn on the edge.
            bound = [max(value, low) for value in gap.omega]
            marker = marker_of(list(names).index(gap.model), 2.6)
            axes.plot(gap.distance, bound, **marker, linestyle="none", alpha=0.55, clip_on=False)
        axes.plot([low, high], [low, high], color=GUIDE, linewidth=0.8, zorder=0)
        axes.fill_between([low, high], [low, high], high, color="#f0f0f0", linewidth=0, zorder=-1)
        axes.annotate("violated", (0.04, 0.93), xycoords="axes fraction", fontsize=6.5, color="#555555")
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        axes.set_xlabel(f"{THREAT_SIGNS[threat]} distance of the nearest adversarial image found")
        axes.set_ylabel("ω-bound (heuristic)")
        in_decades(axes)
    legend_below(figure, model_handles(names, "none"))
    return figure


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
        color=COLOURS[index % len(COLOURS)],
    )
    if solid:
        # At levels of error of its own, so that the markers of two models seldom meet.
        levels = [curve.y[0] + (curve.y[-1] - curve.y[0]) * (k + 0.15 + 0.14 * (index % 6)) / 4 for k in range(4)]
        at = [next(place for place in zip(curve.x, curve.y, strict=True) if place[1] >= level) for level in levels]
        axes.plot(*zip(*at, strict=True), **marker_of(index, 3.4), linestyle="none")


def _end(found: Sequence[Curve], threat: ThreatName) -> float:
    """Where the picture stops: when 98 % of what the attacks ever broke is broken, and not before the usual radii."""
    broken = [
        next(x for x, y in zip(curve.x, curve.y, strict=True) if y >= 0.98 * curve.y[-1])
        for curve in found
        if curve.kind == "empirical"
    ]
    return max([1.15 * STANDARD_RADII[threat][-1], *broken])


def _kind_handles(kinds: Sequence[str]) -> "list[Artist]":
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color="#333333", linestyle=_LINES[kind], linewidth=1.1, label=_KIND_NAMES[kind])
        for kind in kinds
    ]
