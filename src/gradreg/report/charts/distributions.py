"""Charts of how images are distributed: over attacks, over distances, and bounds beside distances."""

import math
from collections.abc import Sequence
from itertools import pairwise

from gradreg.display import charts as axes
from gradreg.display.charts import Axis, Chart, Look, Series
from gradreg.display.numbers import percent
from gradreg.report.charts.builders import distance_axis, keys
from gradreg.report.charts.measures import Gap, Histogram
from gradreg.report.comparison import Comparison
from gradreg.report.tables.findings import wins

_LONGEST = 17


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
                threat=threat,
            )
        )
    return drawn


def histogram(comparison: Comparison, threat: str, found: Histogram, highest: int) -> Chart:
    """How many images were broken at which distance, up to the highest bar of all models."""
    x, y = distance_axis(comparison, threat, found.edges[-1]), axes.counts("images", max(1, highest))
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
        threat=threat,
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
        distance_axis(comparison, threat, high, "distance found", low),
        distance_axis(comparison, threat, high, "ω-bound", low),
        tuple(series),
        f"The ω-bound is above the distance found for {above} of the {shown} images shown.",
        note=f"{shown}{'' if shown == n else f' of {n}'} images, {above} above the diagonal",
        between="at a distance of",
        legend=keys(comparison, [gap.model for gap in found], line=False),
        threat=threat,
    )


def _shortened(name: str) -> str:
    """The whole name is in the alt text and in the tables."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
