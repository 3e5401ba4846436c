"""Each chart of the report, described once; `selection` says which are shown where."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from gradreg.config.fractions import radius_name
from gradreg.display import charts as axes
from gradreg.display.charts import Axis, Chart, Key, Look, Series
from gradreg.display.numbers import percent, significant
from gradreg.evaluation.shares import top_k
from gradreg.report.charts.measures import Curve, Point, points, thinned
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import ball

_LOOKS: dict[str, Look] = {
    "empirical": "solid",
    "calibrated": "dash-dotted",
    "omega-bound": "dashed",
    "certified": "dotted",
}
_NAMES = {
    "empirical": "attacks",
    "calibrated": "calibrated bound",
    "omega-bound": "ω-bound (heuristic)",
    "certified": "smoothed, certified",
}
# More names than this beside their marks would hide the picture; the legend has them.
_NAMED = 6
_LONGEST = 26


def accuracy_curves(comparison: Comparison, title: str, found: Sequence[Curve], x: Axis, wide: bool = False) -> Chart:
    """Robust accuracy against distance by the attacks, bounds and smoothing, on axes that fit what is drawn."""
    models, series = _models(found), _all_series(comparison, found)
    inside = [b for each in series for a, b in zip(each.x, each.y, strict=True) if a <= x.high]
    marks = [_marks(each, x) for each, curve in zip(series, found, strict=True) if curve.kind == "empirical"]
    threat = found[0].threat
    return Chart(
        title,
        x,
        axes.fractions(top_k("robust accuracy", comparison.topk), min(inside), max(inside)),
        (*series, *(marks if len(models) > 1 else [])),
        " ".join(_curve_alt(each, x) for each in series),
        guides=guides(comparison, threat, x),
        legend=_curve_keys(comparison, found),
        threat=threat,
        width=880.0 if wide else 420.0,
        height=430.0 if wide else 300.0,
    )


def paper_curves(comparison: Comparison, found: Sequence[Curve], x: Axis) -> Chart:
    """Figures 1 and 2 of the paper, in its convention: error against distance."""
    models = _models(found)
    series = [replace(each, y=[1 - value for value in each.y]) for each in _all_series(comparison, found)]
    marks = [_marks(each, x) for each, curve in zip(series, found, strict=True) if curve.kind == "empirical"]
    return Chart(
        "",
        x,
        axes.fractions(top_k("error", comparison.topk)),
        (*series, *(marks if len(models) > 1 else [])),
        " ".join(_curve_alt(each, x) for each in series),
        guides=guides(comparison, found[0].threat, x),
        legend=_curve_keys(comparison, found),
        threat=found[0].threat,
    )


def curve_axis(comparison: Comparison, found: Sequence[Curve]) -> Axis:
    """Past the usual radii, and to where the attacks have broken nine of ten images that they ever break."""
    threat = found[0].threat
    reached = [
        next(x for x, y in zip(curve.x, curve.y, strict=True) if 1 - y >= 0.9 * (1 - curve.y[-1]))
        for curve in found
        if curve.kind == "empirical"
    ]
    return distance_axis(comparison, threat, 1.08 * max(*comparison.radii(threat), *reached))


def distance_axis(comparison: Comparison, threat: str, high: float, label: str = "distance", low: float = 0.0) -> Axis:
    """In the unit that the data set's radii are quoted in."""
    return axes.distances(threat, comparison.symbol(threat), high, label, low, comparison.in_255(threat))


def frontier(comparison: Comparison, threat: str, radius: float, closer: bool = False) -> Chart:
    """Clean against robust accuracy, with the cost of training beside each model and a line through the best ones.

    With `closer` without the undefended models, which lie so far away that the others are close together.
    """
    found = _defended(comparison, threat, radius) if closer else points(comparison, threat, radius)
    best: list[Point] = []
    for point in sorted(found, key=lambda each: (-each.clean, -each.robust)):
        if not best or point.robust > best[-1].robust:
            best.append(point)
    x, y = (
        _with_room(top_k(label, comparison.topk), values)
        for label, values in (
            ("clean accuracy", [p.clean for p in found]),
            ("robust accuracy", [p.robust for p in found]),
        )
    )
    path = Series("", [p.clean for p in best], [p.robust for p in best], "line", silent=True)
    named = len(found) <= _NAMED
    marks = [
        Series(
            f"{p.model} {_cost(p)}".strip(),
            [p.clean],
            [p.robust],
            "marks",
            comparison.names.index(p.model),
            labels=[", ".join(filter(None, (_shortened(p.model) if named else "", _cost(p))))],
            # The area grows with the cost, up to nine times.
            size=0.85 * math.sqrt(min(max(p.cost_ratio or 1.0, 1.0), 9.0)),
        )
        for p in found
    ]
    return Chart(
        ball(comparison.symbol(threat), radius) + (", the defended models closer" if closer else ""),
        x,
        y,
        (path, *marks),
        " ".join(
            f"{p.model}: {y.say(p.robust)} robust accuracy, {x.say(p.clean)} clean accuracy, {_cost(p)}." for p in found
        ),
        note="Beside a model: training time × undefended" if any(p.cost_ratio is not None for p in found) else "",
        between=top_k("robust accuracy, clean accuracy", comparison.topk),
        legend=keys(comparison, [p.model for p in found], line=False),
        threat=threat,
    )


def frontiers(comparison: Comparison, threat: str, radius: float) -> list[Chart]:
    """The frontier, and the defended models by themselves where they fill less than a third of an axis."""
    whole, part = points(comparison, threat, radius), _defended(comparison, threat, radius)
    drawn = [frontier(comparison, threat, radius)]
    return [*drawn, frontier(comparison, threat, radius, closer=True)] if _crowded(whole, part) else drawn


def _crowded(whole: Sequence[Point], part: Sequence[Point]) -> bool:
    """Whether several of the points, but not all, fill less than a third of an axis."""
    if not 2 <= len(part) < len(whole):
        return False
    axes = zip(_coordinates(whole), _coordinates(part), strict=True)
    return any(3 * (max(chosen) - min(chosen)) < max(axis) - min(axis) for axis, chosen in axes)


def _defended(comparison: Comparison, threat: str, radius: float) -> list[Point]:
    defended = {each.subject.name for each in comparison.evaluations if each.subject.objective != "undefended"}
    return [point for point in points(comparison, threat, radius) if point.model in defended]


def _coordinates(found: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.clean for point in found], [point.robust for point in found]


def _with_room(label: str, values: Sequence[float]) -> Axis:
    """An axis that fits the values, with room beside them for words."""
    room = 0.12 * (max(values) - min(values))
    return axes.fractions(label, max(0.0, min(values) - room), min(1.0, max(values) + room))


def accuracy_against_cost(comparison: Comparison, threat: str) -> Chart:
    """Robust accuracy filled and clean accuracy hollow, against training time.

    A recipe trained with several seeds is drawn once, at their mean, with a stroke from the least to the largest.
    """
    radius = comparison.main_radius(threat)
    found = {point.model: point for point in points(comparison, threat, radius)}
    series: list[Series] = []
    costs, keys = [1.0], []
    for model, recipe in enumerate(comparison.recipes()):
        seeds = [found[each.subject.name] for each in recipe.evaluations if threat in each.threats]
        ratios = [point.cost_ratio for point in seeds if point.cost_ratio is not None]
        if ratios:
            costs.append(mean(ratios))
            keys.append(Key(recipe.name, model, line=False))
            series += _accuracies(recipe.name, model, mean(ratios), seeds)
    return Chart(
        ball(comparison.symbol(threat), radius),
        axes.linear("training time × undefended", 1.15 * max(costs), significant),
        axes.fractions(top_k("accuracy", comparison.topk)),
        tuple(series),
        " ".join(f"{each.name}: {percent(each.y[0])}." for each in series if not each.silent),
        note=top_k("Filled: robust accuracy; hollow: clean accuracy", comparison.topk),
        legend=tuple(keys),
    )


def _curve(comparison: Comparison, curve: Curve, several: bool) -> Series:
    kind = f"{_NAMES[curve.kind]}{', ' if curve.detail else ''}{curve.detail}"
    name = curve.model if several and curve.kind == "empirical" else f"{curve.model}, {kind}" if several else kind
    number, ends = comparison.names.index(curve.model), curve.kind != "empirical"
    return Series(name, curve.x, curve.y, "steps", number, _LOOKS[curve.kind], ends)


def _models(found: Sequence[Curve]) -> list[str]:
    return list(dict.fromkeys(curve.model for curve in found))


def _all_series(comparison: Comparison, found: Sequence[Curve]) -> list[Series]:
    several = len(_models(found)) > 1
    return [_curve(comparison, curve, several) for curve in found]


def _curve_keys(comparison: Comparison, found: Sequence[Curve]) -> tuple[Key, ...]:
    kinds = [Key(_NAMES[kind], None, look) for kind, look in _LOOKS.items() if any(c.kind == kind for c in found)]
    return (*keys(comparison, _models(found)), *kinds)


def guides(comparison: Comparison, threat: str, x: Axis) -> tuple[tuple[float, str], ...]:
    """Uprights at the usual radii that are on the axis."""
    return tuple((radius, radius_name(radius)) for radius in comparison.radii(threat) if radius <= x.high)


def _marks(curve: Series, x: Axis) -> Series:
    """The model's marker three times along its curve, at other places for each model."""
    number = curve.model or 0
    places = [x.high * (third + 0.5 + 0.2 * (number % 5 - 2)) / 3 for third in range(3)]
    steps = list(zip(curve.x, curve.y, strict=True))
    heights = [next((b for a, b in reversed(steps) if a <= place), steps[0][1]) for place in places]
    return Series("", places, heights, "marks", curve.model, silent=True)


def _curve_alt(curve: Series, x: Axis) -> str:
    """Where a curve starts, is half-way along and ends."""
    inside = [(a, b) for a, b in zip(curve.x, curve.y, strict=True) if a <= x.high]
    picked = [inside[i] for i in thinned(len(inside), 3)]
    return f"{curve.name}: " + ", ".join(f"{percent(b)} at {x.say(a)}" for a, b in picked) + "."


def _accuracies(name: str, model: int, cost: float, seeds: Sequence[Point]) -> list[Series]:
    robust, clean = [point.robust for point in seeds], [point.clean for point in seeds]
    drawn = [Series("", [cost, cost], [mean(robust), mean(clean)], "line", look="dotted", silent=True)]
    looks: tuple[tuple[str, list[float], Look], ...] = (("robust", robust, "solid"), ("clean", clean, "hollow"))
    for what, found, look in looks:
        drawn += [
            Series("", [cost, cost], [min(found), max(found)], "line", model, silent=True),
            Series(f"{name}, {what} accuracy", [cost], [mean(found)], "marks", model, look, size=1.3),
        ]
    return drawn


def _cost(point: Point) -> str:
    if point.cost_ratio is not None:
        return f"{significant(point.cost_ratio)}×"
    return f"{significant(point.hours)} h" if point.hours is not None else ""


def keys(comparison: Comparison, models: Sequence[str], line: bool = True) -> tuple[Key, ...]:
    """Of a legend, for these models."""
    return tuple(Key(model, comparison.names.index(model), line=line) for model in models)


def _shortened(name: str) -> str:
    """The whole name is in the alt text and in the legend."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
