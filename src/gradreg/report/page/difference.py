"""The page on what changed between two evaluations."""

from gradreg.display.charts import Group
from gradreg.report.charts.changes import moved
from gradreg.report.charts.selection import sections
from gradreg.report.page.templates import rendered
from gradreg.report.tables.changes import changes
from gradreg.report.tables.difference import Difference

_MOST = 100


def render(difference: Difference) -> str:
    """The whole page; of the images that changed, those that changed most."""
    comparison = difference.comparison
    scattered = [chart for threat in difference.threats if (chart := moved(difference, threat)) is not None]
    charts = {
        "curves": [group for group in sections(comparison)["curves"] if not group.folded],
        "moved": [Group("", tuple(scattered))] if scattered else [],
    }
    tables = changes(difference, _MOST)
    names = comparison.names
    return rendered(
        "difference.html.j2",
        comparison,
        charts,
        tables,
        ("report",),
        title=f"From “{names[0]}” to “{names[1]}”",
        scope=f"{difference.before.data.name}, n = {len(difference.rows[0])} images that both evaluations looked at",
        sentences=difference.sentences(),
        remarks=comparison.notes,
        tables=tables,
    )
