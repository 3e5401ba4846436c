"""Distances before and after, image by image."""

from gradreg.display.charts import Chart, Series
from gradreg.report.charts.builders import distance_axis
from gradreg.report.charts.measures import thinned
from gradreg.report.tables.difference import Difference

_DOTS = 1000


def moved(difference: Difference, threat: str) -> Chart | None:
    """One dot per image that was broken in both evaluations, on logarithmic axes; None if there is none."""
    before, after = difference.distances(threat)
    both = ((before > 0) & before.isfinite() & (after > 0) & after.isfinite()).nonzero().flatten()
    if not len(both):
        return None
    chosen = both[before[both].argsort(stable=True)][thinned(len(both), _DOTS)]
    x, y = before[chosen].tolist(), after[chosen].tolist()
    low, high = min(*x, *y) / 1.5, max(*x, *y) * 1.5
    nearer, farther = difference.moved(threat)
    comparison = difference.comparison
    return Chart(
        comparison.symbol(threat),
        distance_axis(comparison, threat, high, "distance before", low),
        distance_axis(comparison, threat, high, "distance after", low),
        (
            Series("", [low, high], [low, high], "line", look="dotted", silent=True),
            Series("after", x, y, "dots", 1),
        ),
        f"{nearer} images are nearer after, {farther} farther, of {len(before)}.",
        note=f"{len(chosen)} images; of all {len(before)}, {nearer} are nearer after and {farther} farther",
        between="from",
        threat=threat,
    )
