"""Which charts the page shows: every model's curves, the frontier, the winners, the distances and the gaps."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Evaluation
from gradreg.norms import ThreatName
from gradreg.report import charts
from gradreg.report.axes import Axis, counts, distances, percent, shares
from gradreg.report.charts import Chart, Series
from gradreg.report.curves import Curve, Gap, Point, frontier, gaps, histogram
from gradreg.report.curves import curves as all_curves
from gradreg.report.labels import Rank, Remark, ranks, remarked
from gradreg.report.numbers import STANDARD_RADII, THREAT_SIGNS, significant

_STYLES = {"empirical": "solid", "omega-bound": "dashed", "certified": "dotted"}
_NAMES = {"empirical": "attacks", "omega-bound": "ω-bound", "certified": "certified"}


@dataclass(frozen=True)
class Key:
    """A model's entry in a legend."""

    name: str
    colour: int
    shape: str


@dataclass(frozen=True)
class Group:
    """Charts that stand together, under a heading of their own unless it is empty."""

    title: str
    charts: tuple[Chart, ...]


def legend(evaluations: Sequence[Evaluation]) -> list[Key]:
    """The colour and shape of each model, the same all over the page."""
    return [
        Key(evaluation.subject.name, i % charts.COLOURS, charts.shape(i)) for i, evaluation in enumerate(evaluations)
    ]


def error_curves(evaluations: Sequence[Evaluation]) -> list[Group]:
    """Figures 1 and 2 of the paper: all models together as attacked, then each with its bounds."""
    found, numbers = all_curves(evaluations), _numbers(evaluations)
    overviews, singles = [], []
    for threat, axis in _axes(found).items():
        sign, guides = THREAT_SIGNS[threat], [(radius, radius_name(radius)) for radius in STANDARD_RADII[threat]]
        here = [curve for curve in found if curve.threat == threat]
        attacked = [_series(curve, numbers, curve.model) for curve in here if curve.kind == "empirical"]
        if len(attacked) > 1:
            overviews.append(charts.curves(f"All models, {sign} attacks", attacked, axis, shares("error"), guides))
        each = []
        for model in dict.fromkeys(curve.model for curve in here):
            lines = [
                _series(curve, numbers, f"{_NAMES[curve.kind]}{', ' if curve.detail else ''}{curve.detail}")
                for curve in here
                if curve.model == model
            ]
            each.append(charts.curves(f"{model}, {sign}", lines, axis, shares("error"), guides))
        singles.append(Group(f"{sign}, model by model", tuple(each)))
    return [*([Group("", tuple(overviews))] if overviews else []), *_merged(singles)]


def frontiers(evaluations: Sequence[Evaluation]) -> list[Group]:
    """Clean against robust error at every usual radius; nothing for a model by itself."""
    numbers = _numbers(evaluations)
    groups: dict[tuple[ThreatName, float], list[Point]] = {}
    for point in frontier(evaluations):
        groups.setdefault((point.threat, point.radius), []).append(point)
    drawn = [
        _frontier(f"{THREAT_SIGNS[threat]} within {radius_name(radius)}", points, numbers)
        for (threat, radius), points in groups.items()
        if len(points) > 1
    ]
    return [Group("", tuple(drawn))] if drawn else []


def winners(evaluations: Sequence[Evaluation]) -> list[Group]:
    """How many images each attack broke at the smallest distance."""
    numbers, groups = _numbers(evaluations), []
    for threat in _threats(evaluations):
        ranked = {e.subject.name: _ranks(e.threats[threat].attacked.winner) for e in evaluations if threat in e.threats}
        longest = max(rank.share for rows in ranked.values() for rank in rows)
        sign = THREAT_SIGNS[threat]
        drawn = [ranks(f"{model}, {sign}", rows, numbers[model], longest) for model, rows in ranked.items()]
        groups.append(Group(sign, tuple(drawn)))
    return _merged(groups)


def distributions(evaluations: Sequence[Evaluation]) -> list[Group]:
    """Histograms of the distances on the same axes for all models of a threat."""
    numbers, groups = _numbers(evaluations), []
    for threat in _threats(evaluations):
        found = histogram(evaluations, threat)
        x = distances(threat, found[0].edges[-1])
        y = counts("images", max(1, *(max(each.counts) for each in found)))
        drawn = []
        sign = THREAT_SIGNS[threat]
        for each in found:
            middles = [(low + high) / 2 for low, high in pairwise(each.edges)]
            heights = Series("images", middles, each.counts, numbers[each.model])
            chart = charts.bars(f"{each.model}, {sign}", heights, each.edges, x, y)
            note = f"{each.misclassified} misclassified, {each.unbroken} unbroken of {each.n}"
            drawn.append(replace(chart, note=note))
        groups.append(Group(sign, tuple(drawn)))
    return _merged(groups)


def bound_gaps(evaluations: Sequence[Evaluation]) -> list[Group]:
    """Each image's ω-bound over the distance at which it was broken, those above the diagonal set apart."""
    numbers, found = _numbers(evaluations), [gap for gap in gaps(evaluations) if gap.distance]
    groups = []
    for threat in dict.fromkeys(gap.threat for gap in found):
        drawn = tuple(_gap(gap, numbers[gap.model]) for gap in found if gap.threat == threat)
        groups.append(Group(THREAT_SIGNS[threat], drawn))
    return _merged(groups)


def refusals(evaluations: Sequence[Evaluation]) -> list[str]:
    """Why there are no bounds where there are none."""
    return [
        f"{evaluation.subject.name}, {THREAT_SIGNS[examined.threat]}: no bounds. {examined.refusal}"
        for evaluation in evaluations
        for examined in evaluation.threats.values()
        if examined.bounded is None
    ]


def _series(curve: Curve, numbers: dict[str, int], name: str) -> Series:
    style, ends = _STYLES[curve.kind], curve.kind != "empirical"
    return Series(name, curve.x, curve.y, numbers[curve.model], style, ends)


def _axes(found: Sequence[Curve]) -> dict[ThreatName, Axis]:
    """One for each threat: past the usual radii, and to where the attacks have nine of ten images that they get."""
    axes = {}
    for threat, radii in STANDARD_RADII.items():
        here = [curve for curve in found if curve.threat == threat]
        if here:
            done = [_reached(curve, 0.9) for curve in here if curve.kind == "empirical"]
            axes[threat] = distances(threat, 1.08 * max(*radii, *done))
    return axes


def _reached(curve: Curve, part: float) -> float:
    return next(x for x, y in zip(curve.x, curve.y, strict=True) if y >= part * curve.y[-1])


def _frontier(title: str, points: Sequence[Point], numbers: dict[str, int]) -> Chart:
    unbeaten: list[Point] = []
    for point in sorted(points, key=lambda p: (p.clean_error, p.robust_error)):
        if not unbeaten or point.robust_error < unbeaten[-1].robust_error:
            unbeaten.append(point)
    x = shares("clean error", min(1.0, max(0.01, *(1.25 * point.clean_error for point in points))))
    marks = [
        Remark(p.model, _cost(p), p.clean_error, p.robust_error, numbers[p.model], _size(p.cost_ratio)) for p in points
    ]
    return remarked(title, marks, x, shares("robust error"), [(p.clean_error, p.robust_error) for p in unbeaten])


def _cost(point: Point) -> str:
    if point.cost_ratio is not None:
        return f"{significant(point.cost_ratio)}×"
    return f"{significant(point.hours)} h" if point.hours is not None else ""


def _size(ratio: float | None) -> float:
    """The area grows with the cost, up to nine times."""
    return 0.85 * math.sqrt(min(max(ratio or 1.0, 1.0), 9.0))


def _ranks(winner: Sequence[str]) -> list[Rank]:
    won, n = Counter(winner), len(winner)
    attacks = sorted(set(won) - {"clean", ""}, key=lambda name: (-won[name], name))
    others = [(key, text) for key, text in (("clean", "misclassified"), ("", "unbroken")) if won[key]]
    rows = [(name, name, True) for name in attacks] + [(key, text, False) for key, text in others]
    return [Rank(text, won[key] / n, f"{percent(won[key] / n)} ({won[key]})", attack) for key, text, attack in rows]


def _gap(gap: Gap, model: int) -> Chart:
    x = distances(gap.threat, 1.03 * max(gap.distance), "distance found")
    highest = max((bound for bound in gap.omega if math.isfinite(bound)), default=0.0)
    y = distances(gap.threat, 1.1 * highest or x.high, "ω-bound")
    violated = [bound > distance + 1e-6 for bound, distance in zip(gap.omega, gap.distance, strict=True)]
    parts = []
    for name, above in (("bound holds", False), ("bound violated", True)):
        # A bound without end is violated too, but nowhere on the chart.
        chosen = [i for i, each in enumerate(violated) if each == above and math.isfinite(gap.omega[i])]
        if chosen:
            xs, ys = [gap.distance[i] for i in chosen], [gap.omega[i] for i in chosen]
            parts.append(Series(name, xs, ys, model, "hollow" if above else "full"))
    shown = len(gap.distance)
    told = f"The ω-bound is above the distance found for {sum(violated)} of the {shown} images shown."
    chart = charts.cloud(f"{gap.model}, {THREAT_SIGNS[gap.threat]}", parts, x, y, told)
    n = f"{shown} images" if shown == gap.n else f"{shown} of {gap.n} images"
    return replace(chart, note=f"{n}, {sum(violated)} above the diagonal")


def _merged(groups: list[Group]) -> list[Group]:
    """Threats of one model stand side by side; headings would only part them."""
    if any(len(group.charts) > 1 for group in groups) or not groups:
        return groups
    return [Group("", tuple(chart for group in groups for chart in group.charts))]


def _numbers(evaluations: Sequence[Evaluation]) -> dict[str, int]:
    return {evaluation.subject.name: i for i, evaluation in enumerate(evaluations)}


def _threats(evaluations: Sequence[Evaluation]) -> list[ThreatName]:
    return [threat for threat in STANDARD_RADII if any(threat in evaluation.threats for evaluation in evaluations)]
