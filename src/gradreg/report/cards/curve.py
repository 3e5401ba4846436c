"""The curve of a card: robust accuracy against distance as an SVG file that needs nothing beside it."""

from dataclasses import replace

from markupsafe import Markup

from gradreg.display.charts import Chart, Key, legend_of
from gradreg.evaluation.record import Evaluation
from gradreg.report.charts import svg
from gradreg.report.charts.builders import accuracy_curves, curve_axis
from gradreg.report.charts.measures import curves
from gradreg.report.comparison import Comparison

# As on the report's page, for light and dark surroundings.
_STYLE = """
svg{--ink:#1b2026;--soft:#59636d;--rule:#dde1e4;--c0:#0072b2}
@media(prefers-color-scheme:dark){svg{--ink:#e4e7ea;--soft:#9ca6af;--rule:#2e363d;--c0:#4ba3dc}}
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--soft)}
.name{fill:var(--ink);font-weight:600}.tick.x,.guide-name{text-anchor:middle}.tick.y,.label.x{text-anchor:end}
path{fill:none}.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.guide{stroke:var(--soft);stroke-dasharray:1 3}
.line{stroke-width:2.25;stroke-linejoin:round}.c0{stroke:var(--c0)}.ink{stroke:var(--ink)}
.dashed{stroke-dasharray:7 4}.dash-dotted{stroke-dasharray:10 3 2 3}
.dotted{stroke-dasharray:.1 4.5;stroke-linecap:round;stroke-width:2.6}
"""
_HEIGHT, _TITLE, _KEY, _GAP = 260.0, 24.0, 22.0, 20.0


def charts(evaluation: Evaluation) -> list[Chart]:
    """One per threat: by the attacks, the bounds and smoothing."""
    comparison = Comparison.of([evaluation])
    found = [each for threat in comparison.threats if (each := curves(comparison, threat))]
    return [accuracy_curves(comparison, "", each, curve_axis(comparison, each)) for each in found]


def words(evaluation: Evaluation) -> str:
    """The curves for readers who do not see them."""
    return " ".join(chart.alt for chart in charts(evaluation))


def draw(evaluation: Evaluation) -> str:
    """The file: the charts one below the other, over one legend."""
    drawn, height, width = [], 0.0, 0.0
    shown = charts(evaluation)
    for chart in shown:
        name = evaluation.threats[chart.threat].symbol
        title = Markup('<text class="name" x="0" y="{}">{}</text>').format(round(height + 14), name)
        # As plain text: a Markup would escape what is put into it.
        place = f'<svg y="{height + _TITLE:g}" width="{chart.width:g}" height="{_HEIGHT:g}" '
        drawn += [title, Markup(str(svg.draw(replace(chart, height=_HEIGHT))).replace("<svg ", place, 1))]
        height, width = height + _TITLE + _HEIGHT + _GAP, max(width, chart.width)
    for key in legend_of(shown):
        if key.model is None:
            drawn.append(_entry(key, height))
            height += _KEY
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" width="{}" role="img" aria-label="{}">'
        "<style>{}</style>{}</svg>\n"
    ).format(f"{width:g}", f"{height:g}", f"{width:g}", words(evaluation), Markup(_STYLE), Markup("").join(drawn))


def _entry(key: Key, height: float) -> Markup:
    line = Markup('<path class="line {} ink" d="M52 {y}H82"/>').format(key.look, y=f"{height + 8:g}")
    return line + Markup('<text x="92" y="{}">{}</text>').format(f"{height + 12:g}", key.name)
