"""The report as one HTML file: it needs no network, no script to be read, and prints."""

from gradreg.display.charts import Key
from gradreg.evaluation.shares import top_k
from gradreg.report.charts.selection import sections
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import ball
from gradreg.report.numbers import images as counted
from gradreg.report.page import images, provenance
from gradreg.report.page.gallery import walls
from gradreg.report.page.glossary import glossary
from gradreg.report.page.templates import rendered
from gradreg.report.page.verdict import cards, leaders, refusals, sorted_flags
from gradreg.report.tables.registry import is_papers, tables


def render(comparison: Comparison, paper: bool = False) -> str:
    """The whole page. With `paper`, the paper's own rows are quoted below ours."""
    charts = sections(comparison)
    exhibits, reduced = walls(comparison)
    built = tables(comparison, paper)
    provenances = [provenance.of(evaluation) for evaluation in comparison.evaluations]
    return rendered(
        "report.html.j2",
        comparison,
        charts,
        built,
        ("report", "images"),
        title=_title(comparison),
        scope=_scope(comparison),
        remarks=comparison.notes,
        keys=[Key(name, number) for number, name in enumerate(comparison.names)],
        symbols=[comparison.symbol(threat) for threat in comparison.threats],
        compared=[(threat, _compared_at(comparison, threat)) for threat in comparison.threats],
        words=lambda text: top_k(text, comparison.topk),
        cards=cards(comparison),
        leaders=leaders(comparison),
        tables=[table for table in built if not is_papers(table)],
        papers=[table for table in built if is_papers(table)],
        refusals=refusals(comparison),
        walls=exhibits,
        reduced=reduced,
        image_data=images.embedded(images.data(comparison)),
        flags=sorted_flags(comparison),
        provenances=provenances,
        shared=provenance.shared(provenances),
        glossary=glossary(comparison),
    )  # fmt: skip


def _title(comparison: Comparison) -> str:
    names = comparison.names
    return f"How robust is “{names[0]}”?" if len(names) == 1 else f"How robust are {len(names)} models?"


def _scope(comparison: Comparison) -> str:
    data = comparison.evaluations[0].data
    return f"{data.name}, {counted(map(len, comparison.evaluations))} of {data.images:,} in the test set"


def _compared_at(comparison: Comparison, threat: str) -> str:
    return ball(comparison.symbol(threat), comparison.main_radius(threat))
