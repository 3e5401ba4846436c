"""Each chart of the report, described once; `selection` says which are shown where."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from gradreg.config.fractions import radius_name
from gradreg.display import charts as axes
from gradreg.display.charts import Axis, Chart, Key, Look, Series
from gradreg.display.numbers import percent, significant
from gradreg.evaluation.shares import top_k
from gradreg.report.charts.measures import Curve, Gap, Histogram, Point, points, thinned
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import ball
from gradreg.report.tables.findings import wins

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
_LONGEST = 17


def error_curves(comparison: Comparison, title: str, found: Sequence[Curve], x: Axis) -> Chart:
    """Figures 1 and 2 of the paper: error against distance by the attacks, bounds and smoothing."""
    models = list(dict.fromkeys(curve.model for curve in found))
    series = [_curve(comparison, curve, several=len(models) > 1) for curve in found]
    marks = [_marks(each, x) for each, curve in zip(series, found, strict=True) if curve.kind == "empirical"]
    kinds = [Key(_NAMES[kind], None, look) for kind, look in _LOOKS.items() if any(c.kind == kind for c in found)]
    threat = found[0].threat
    return Chart(
        title,
        x,
        axes.fractions(top_k("error", comparison.topk)),
        (*series, *(marks if len(models) > 1 else [])),
        " ".join(_curve_alt(each, x) for each in series),
        guides=tuple((radius, radius_name(radius)) for radius in comparison.radii(threat) if radius <= x.high),
        legend=(*_keys(comparison, models), *kinds),
    )


def curve_axis(comparison: Comparison, found: Sequence[Curve]) -> Axis:
    """Past the usual radii, and to where the attacks have broken nine of ten images that they ever break."""
    threat = found[0].threat
    reached = [
        next(x for x, y in zip(curve.x, curve.y, strict=True) if y >= 0.9 * curve.y[-1])
        for curve in found
        if curve.kind == "empirical"
    ]
    return axes.distances(threat, comparison.symbol(threat), 1.08 * max(*comparison.radii(threat), *reached))


def frontier(comparison: Comparison, threat: str, radius: float) -> Chart:
    """Clean against robust error, with the cost of training beside each model and a line through the best ones."""
    found = points(comparison, threat, radius)
    best: list[Point] = []
    for point in sorted(found, key=lambda each: (each.clean_error, each.robust_error)):
        if not best or point.robust_error < best[-1].robust_error:
            best.append(point)
    x = axes.fractions(
        top_k("clean error", comparison.topk), min(1.0, max(0.01, *(1.25 * point.clean_error for point in found)))
    )
    y = axes.fractions(top_k("robust error", comparison.topk))
    path = Series("", [p.clean_error for p in best], [p.robust_error for p in best], "line", silent=True)
    marks = [
        Series(
            f"{p.model} {_cost(p)}".strip(),
            [p.clean_error],
            [p.robust_error],
            "marks",
            comparison.names.index(p.model),
            labels=[_cost(p)],
            # The area grows with the cost, up to nine times.
            size=0.85 * math.sqrt(min(max(p.cost_ratio or 1.0, 1.0), 9.0)),
        )
        for p in found
    ]
    return Chart(
        ball(comparison.symbol(threat), radius),
        x,
        y,
        (path, *marks),
        " ".join(
            f"{p.model}: {y.say(p.robust_error)} robust error, {x.say(p.clean_error)} clean error, {_cost(p)}."
            for p in found
        ),
        note="Beside a model: training time × undefended" if any(p.cost_ratio is not None for p in found) else "",
        between=top_k("robust error, clean error", comparison.topk),
        legend=_keys(comparison, [p.model for p in found], line=False),
    )


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


def winners(comparison: Comparison, threat: str) -> list[Chart]:
    """For each model, how many images each attack broke at the smallest distance; one scale for all."""
    found = {evaluation.subject.name: wins(record.attacked) for evaluation, record in comparison.under(threat)}
    longest = max(max(won.values()) / won.total() for won in found.values())
    drawn = []
    for model, won in found.items():
        attacks = sorted(set(won) - {"clean", ""}, key=lambda name: (-won[name], name))
        others = {key: text for key, text in (("clean", "misclassified"), ("", "unbroken")) if won[key]}
        names = [*attacks, *others.values()]
        part = [won[key] / won.total() for key in (*attacks, *others)]
        text = [f"{percent(each)} ({won[key]})" for each, key in zip(part, (*attacks, *others), strict=True)]
        places, split, number = list(range(len(names))), len(attacks), comparison.names.index(model)
        series = [
            Series("", part[rows], places[rows], "across", colour, labels=text[rows], silent=True)
            for rows, colour in ((slice(split), number), (slice(split, None), None))
        ]
        drawn.append(
            Chart(
                f"{model}, {comparison.symbol(threat)}",
                Axis("", 0.0, 1.45 * longest, ()),
                axes.categories([_shortened(name) for name in names]),
                tuple(series),
                "; ".join(f"{name}: {value}" for name, value in zip(names, text, strict=True)) + ".",
                height=24.0 * len(names) + 4,
            )
        )
    return drawn


def histogram(comparison: Comparison, threat: str, found: Histogram, highest: int) -> Chart:
    """How many images were broken at which distance, up to the highest bar of all models."""
    x, y = axes.distances(threat, comparison.symbol(threat), found.edges[-1]), axes.counts("images", max(1, highest))
    middles = [(low + high) / 2 for low, high in pairwise(found.edges)]
    number = comparison.names.index(found.model)
    tallest = max(range(len(middles)), key=found.counts.__getitem__)
    return Chart(
        f"{found.model}, {comparison.symbol(threat)}",
        x,
        y,
        (Series("images", middles, found.counts, "bars", number, edges=found.edges),),
        f"Most images, {y.say(found.counts[tallest])}, at {x.say(found.edges[tallest])} to "
        f"{x.say(found.edges[tallest + 1])}.",
        note=f"{found.misclassified} misclassified, {found.unbroken} unbroken of {found.n}",
    )


def bound_gap(comparison: Comparison, threat: str, found: Sequence[Gap]) -> Chart:
    """Each image's ω-bound over the distance at which it was broken, violations hollow."""
    values = [value for gap in found for value in (*gap.distance, *gap.omega) if 0 < value < math.inf]
    low, high = min(values) / 1.5, max(values) * 1.5
    series = [Series("", [low, high], [low, high], "line", look="dotted", silent=True)]
    shown = above = 0
    for gap in found:
        pairs = list(zip(gap.distance, gap.omega, strict=True))
        number = comparison.names.index(gap.model)
        parts: tuple[tuple[str, Look, bool], ...] = (("holds", "solid", False), ("violated", "hollow", True))
        for name, look, violated in parts:
            # An infinite bound is violated too, but has no place in the chart.
            chosen = [(d, b) for d, b in pairs if (b > d + 1e-6) == violated and b < math.inf]
            if chosen:
                xs, ys = zip(*chosen, strict=True)
                series.append(Series(f"bound {name}", xs, ys, "dots", number, look))
        shown, above = shown + len(pairs), above + sum(b > d + 1e-6 for d, b in pairs)
    n, symbol = sum(gap.n for gap in found), comparison.symbol(threat)
    return Chart(
        f"{found[0].model}, {symbol}" if len(found) == 1 else symbol,
        axes.distances(threat, comparison.symbol(threat), high, "distance found", low),
        axes.distances(threat, comparison.symbol(threat), high, "ω-bound", low),
        tuple(series),
        f"The ω-bound is above the distance found for {above} of the {shown} images shown.",
        note=f"{shown}{'' if shown == n else f' of {n}'} images, {above} above the diagonal",
        between="at a distance of",
        legend=_keys(comparison, [gap.model for gap in found], line=False),
    )


def _curve(comparison: Comparison, curve: Curve, several: bool) -> Series:
    kind = f"{_NAMES[curve.kind]}{', ' if curve.detail else ''}{curve.detail}"
    name = curve.model if several and curve.kind == "empirical" else f"{curve.model}, {kind}" if several else kind
    number, ends = comparison.names.index(curve.model), curve.kind != "empirical"
    return Series(name, curve.x, curve.y, "steps", number, _LOOKS[curve.kind], ends)


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
    robust, clean = [1 - point.robust_error for point in seeds], [1 - point.clean_error for point in seeds]
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


def _keys(comparison: Comparison, models: Sequence[str], line: bool = True) -> tuple[Key, ...]:
    return tuple(Key(model, comparison.names.index(model), line=line) for model in models)


def _shortened(name: str) -> str:
    """The whole name is in the alt text and in the tables."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
