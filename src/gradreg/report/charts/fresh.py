"""Accuracy against distance of randomised models: under the draws that were attacked, and under fresh ones."""

from gradreg.display import charts as axes
from gradreg.display.charts import Chart, Key, Series
from gradreg.display.curves import steps
from gradreg.display.numbers import percent
from gradreg.evaluation.redrawn import Redrawn
from gradreg.evaluation.shares import share_of, top_k
from gradreg.norms import robust_at
from gradreg.report.charts.builders import curve_axis, guides
from gradreg.report.charts.measures import Curve
from gradreg.report.comparison import Comparison
from gradreg.report.tables.fresh import redrawn

_KEYS = (
    Key("fixed draws, attacked", None),
    Key("fresh draws", None, "dashed"),
)


def redrawn_curves(comparison: Comparison) -> list[Chart]:
    """A chart for each randomised model and threat; none without such models."""
    return [
        _chart(comparison, evaluation.subject.name, threat, found)
        for threat in comparison.threats
        for evaluation, _, found in redrawn(comparison, threat)
    ]


def _chart(comparison: Comparison, model: str, threat: str, found: Redrawn) -> Chart:
    number, radii = comparison.names.index(model), (0.0, *comparison.radii(threat))
    fixed = Curve(model, "empirical", threat, *steps(found.distance))
    x = curve_axis(comparison, [fixed])
    places = [radius for radius in radii if radius <= x.high]
    single = [found.single(radius) for radius in places]
    series = (
        Series("fixed draws", fixed.x, fixed.y, "steps", number),
        Series("fresh draws", *steps(found.fresh_distance), "steps", number, "dashed"),
        Series("one fresh draw", places, single, "marks", number, "hollow"),
    )
    inside = [b for each in series for a, b in zip(each.x, each.y, strict=True) if a <= x.high]
    return Chart(
        f"{model}, {comparison.symbol(threat)}",
        x,
        axes.fractions(top_k("accuracy", comparison.topk), min(inside), max(inside)),
        series,
        " ".join(
            f"At {x.say(radius)}: {percent(share_of(robust_at(found.distance, radius)).value)} under the fixed draws, "
            f"{percent(share_of(found.robust(radius)).value)} under fresh draws, {percent(one)} under one."
            for radius, one in zip(places, single, strict=True)
        ),
        note="Hollow: one fresh draw, on average",
        guides=guides(comparison, threat, x),
        legend=_KEYS,
        threat=threat,
    )
