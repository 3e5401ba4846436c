"""Robust accuracy against distance: the step function, and a chart of it."""

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from gradreg.display import charts as axes
from gradreg.display.charts import Chart, Key, Look, Series
from gradreg.display.numbers import percent

_POINTS = 200
_LOOKS: tuple[Look, ...] = ("solid", "dashed", "dash-dotted", "dotted")


def accuracy_chart(
    threat: str, symbol: str, distances: Mapping[str, tuple[Tensor, float]], radii: Sequence[tuple[float, str]]
) -> Chart:
    """The share of images beyond each distance, for several kinds of distances by name, each known up to some end."""
    found = {name: steps(*given) for name, given in distances.items()}
    reached = [next(a for a, b in zip(x, y, strict=True) if b <= 0.9 * y[-1] + 0.1 * y[0]) for x, y in found.values()]
    x = axes.distances(threat, symbol, 1.08 * max([radius for radius, _ in radii] + reached) or 1.0)
    series = tuple(
        Series(name, *curve, "steps", at // len(_LOOKS), _LOOKS[at % len(_LOOKS)], math.isfinite(distances[name][1]))
        for at, (name, curve) in enumerate(found.items())
    )
    legend = tuple(Key(each.name, each.model or None, each.look) for each in series) if len(series) > 1 else ()
    said = " ".join(f"{each.name}: {percent(each.y[0])} at 0." for each in series)
    return Chart("", x, axes.fractions("robust accuracy"), series, said, guides=tuple(radii), legend=legend)


def steps(values: Tensor, end: float = math.inf) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The fraction of values > x at every x where it falls; from `end` on nothing is known, so the curve stops."""
    n = len(values)
    finite = values[values.isfinite()].clamp(min=0).double()
    xs, counts = finite.unique(sorted=True, return_counts=True)
    places = list(zip(xs.tolist(), counts.cumsum(0).tolist(), strict=True))
    if not places or places[0][0] > 0:
        places.insert(0, (0.0, 0))
    kept = _thinned([step for step in places if step[0] < end or step[0] == 0], n)
    if end < float("inf") and kept[-1][0] < end and kept[-1][1] < n:
        kept.append((end, kept[-1][1]))
    return tuple(x for x, _ in kept), tuple((n - count) / n for _, count in kept)


def _thinned(steps: Sequence[tuple[float, int]], n: int) -> list[tuple[float, int]]:
    """Leave out a step while the curve is within 0.5 % of it without; at most 200 rises of more than that fit in 1."""
    if len(steps) < _POINTS:
        return list(steps)
    kept = [steps[0]]
    for step in steps[1:]:
        if (step[1] - kept[-1][1]) * _POINTS > n:
            kept.append(step)
    return kept
