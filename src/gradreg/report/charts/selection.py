"""Which charts are shown: on the page model by model, in the files of a paper all models together."""

from dataclasses import replace

from gradreg.display.charts import Chart, Figure, Group
from gradreg.norms import THREATS
from gradreg.report.charts import builders, distributions
from gradreg.report.charts.fresh import redrawn_curves
from gradreg.report.charts.measures import curves, gaps, histograms
from gradreg.report.charts.seeds import spreads
from gradreg.report.comparison import Comparison


def sections(comparison: Comparison) -> dict[str, list[Group]]:
    """The page's charts by section, in the order shown; a section without charts is empty."""
    return {
        "curves": _curves(comparison),
        "fresh": [Group("", tuple(drawn))] if (drawn := redrawn_curves(comparison)) else [],
        "frontier": _frontiers(comparison),
        "seeds": [Group("", tuple(drawn))] if (drawn := spreads(comparison)) else [],
        "attacks": _by_threat(
            comparison, {threat: distributions.winners(comparison, threat) for threat in comparison.threats}
        ),
        "distances": _by_threat(comparison, {threat: _histograms(comparison, threat) for threat in comparison.threats}),
        "gaps": _by_threat(
            comparison,
            {
                threat: [distributions.bound_gap(comparison, threat, [gap]) for gap in gaps(comparison, threat)]
                for threat in comparison.threats
            },
        ),
    }


def figures(comparison: Comparison) -> list[Figure]:
    """The files' charts, all models together."""
    threats, found = comparison.threats, []
    for threat in threats:
        drawn = curves(comparison, threat)
        chart = builders.paper_curves(comparison, drawn, builders.curve_axis(comparison, drawn))
        found.append(Figure(f"figure-1-{threat}", ((chart,),), 2.25))
    if not threats:
        return found
    frontiers = (builders.frontier(comparison, threat, comparison.main_radius(threat)) for threat in threats)
    found.append(Figure("frontier", (tuple(frontiers),), 2.5))
    if any(comparison.cost_ratio(evaluation) is not None for evaluation in comparison.evaluations):
        costs = tuple(builders.accuracy_against_cost(comparison, threat) for threat in threats)
        found.append(Figure("cost", (costs,), 2.5))
    by_model = [{chart.series[0].model: chart for chart in _histograms(comparison, threat)} for threat in threats]
    rows = [tuple(charts.get(number) for charts in by_model) for number in range(len(comparison.names))]
    found.append(Figure("distances", tuple(row for row in rows if any(row)), 1.2))
    bounded = {threat: gap for threat in threats if (gap := gaps(comparison, threat))}
    if bounded:
        panels = tuple(distributions.bound_gap(comparison, threat, gap) for threat, gap in bounded.items())
        found.append(Figure("gap", (panels,), 2.8))
    return found


def _curves(comparison: Comparison) -> list[Group]:
    """All models together as attacked, in one large figure per threat, then each with its bounds.

    A single model's large figure has its bounds.
    """
    large: list[Chart] = []
    singles: dict[str, list[Chart]] = {}
    for threat in dict.fromkeys((*THREATS, *comparison.threats)):
        found = curves(comparison, threat)
        if not found:
            continue
        axis, symbol = builders.curve_axis(comparison, found), comparison.symbol(threat)
        models = list(dict.fromkeys(curve.model for curve in found))
        attacked = [curve for curve in found if curve.kind == "empirical"]
        several = len(comparison.names) > 1
        if not several or attacked:
            shown, title = (attacked, f"{symbol} attacks") if several else (found, symbol)
            narrow, wide = (builders.accuracy_curves(comparison, title, shown, axis, wide=w) for w in (False, True))
            large.append(replace(wide, narrow=narrow))
        if several:
            singles[threat] = [
                builders.accuracy_curves(comparison, f"{model}, {symbol}", [c for c in found if c.model == model], axis)
                for model in models
            ]
    groups = _by_threat(comparison, singles, ", model by model, with bounds and certificates")
    return [*([Group("", tuple(large))] if large else []), *(replace(group, folded=True) for group in groups)]


def _frontiers(comparison: Comparison) -> list[Group]:
    """At the radius that models are compared at, then at the others; nothing for a model by itself."""
    found = [threat for threat in comparison.threats if len(comparison.under(threat)) > 1]
    main = [
        chart for threat in found for chart in builders.frontiers(comparison, threat, comparison.main_radius(threat))
    ]
    others = [
        builders.frontier(comparison, threat, radius)
        for threat in found
        for radius in comparison.radii(threat)
        if radius != comparison.main_radius(threat)
    ]
    groups = (Group("", tuple(main)), Group("At the other radii", tuple(others), folded=True))
    return [group for group in groups if group.charts]


def _histograms(comparison: Comparison, threat: str) -> list[Chart]:
    found = histograms(comparison, threat)
    highest = max(count for each in found for count in each.counts)
    return [distributions.histogram(comparison, threat, each, highest) for each in found]


def _by_threat(comparison: Comparison, charts: dict[str, list[Chart]], suffix: str = "") -> list[Group]:
    """A group per threat; of a single model all charts stand side by side, without headings between them."""
    if all(len(drawn) <= 1 for drawn in charts.values()):
        together = tuple(chart for drawn in charts.values() for chart in drawn)
        return [Group("", together)] if together else []
    return [Group(comparison.symbol(threat) + suffix, tuple(drawn)) for threat, drawn in charts.items() if drawn]
