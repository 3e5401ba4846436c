"""The report as one HTML file: it asks no network for anything, needs no script to be read, and prints."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gradreg.evaluation.record import Evaluation
from gradreg.report import drawings, making
from gradreg.report.compare import check_comparable, with_distinct_names
from gradreg.report.drawings import Group
from gradreg.report.gallery import walls
from gradreg.report.layout import Table
from gradreg.report.numbers import STANDARD_RADII, images, significant
from gradreg.report.tables import tables
from gradreg.report.verdict import cards, leaders, sorted_flags

if TYPE_CHECKING:
    from jinja2 import Environment


def render(evaluations: Sequence[Evaluation], paper: bool = False) -> str:
    """The whole page. With `paper`, the tables quote the paper's own rows beside those measured here."""
    remarks = check_comparable(evaluations)
    shown = [_in_usual_order(evaluation) for evaluation in with_distinct_names(evaluations)]
    style, script = _asset("report.css"), _asset("report.js")
    figures = {
        "curves": drawings.error_curves(shown),
        "frontiers": drawings.frontiers(shown),
        "winners": drawings.winners(shown),
        "distributions": drawings.distributions(shown),
        "gaps": drawings.bound_gaps(shown),
    }
    exhibits, reduced = walls(shown)
    built = tables(shown, paper)
    makings = [making.of(evaluation) for evaluation in shown]
    return _environment().get_template("report.html.j2").render(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        title=_title(shown),
        scope=_scope(shown),
        remarks=remarks,
        cards=cards(shown),
        leaders=leaders(shown),
        tables=built,
        best={table.key: _best(table) for table in built},
        figures=figures,
        chart_data=_chart_data(figures.values()),
        legend=drawings.legend(shown),
        refusals=drawings.refusals(shown),
        walls=exhibits,
        reduced=reduced,
        flags=sorted_flags(shown),
        makings=makings,
        shared=making.shared(makings),
        words=making.WORDS,
    )  # fmt: skip


@cache
def _environment() -> "Environment":
    from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound

    class Assets(BaseLoader):
        """Templates beside this file, wherever the package is installed."""

        def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, None]:
            try:
                return _asset(template), None, None
            except FileNotFoundError as error:
                raise TemplateNotFound(template) from error

    environment = Environment(
        loader=Assets(), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["figure"] = lambda value: significant(value) if isinstance(value, float) else value
    environment.filters["tight"] = _tight
    return environment


@cache
def _asset(name: str) -> str:
    return files("gradreg.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy knows an inline style or script by, so that no other is ever run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _tight(text: str) -> str:
    """No line ends inside an interval, or between a figure and its sign."""
    for loose, tight in ((" %", " %"), ("n = ", "n = "), ("–", "–\N{WORD JOINER}"), ("-bound", "‑bound")):
        text = text.replace(loose, tight.replace(" ", "\N{NO-BREAK SPACE}"))
    return text


def _in_usual_order(evaluation: Evaluation) -> Evaluation:
    ordered = {str(threat): evaluation.threats[threat] for threat in STANDARD_RADII if threat in evaluation.threats}
    return replace(evaluation, threats=ordered)


def _title(evaluations: Sequence[Evaluation]) -> str:
    name = evaluations[0].subject.name
    return f"How robust is “{name}”?" if len(evaluations) == 1 else f"How robust are {len(evaluations)} models?"


def _scope(evaluations: Sequence[Evaluation]) -> str:
    data = evaluations[0].data
    return f"{data.name}, {images(map(len, evaluations))} of {data.images:,} in the test set"


def _best(table: Table) -> set[tuple[int, int]]:
    """Places of the best figure of each column that has a good side; a single row has nothing to be better than."""
    places = set()
    for j, column in enumerate(table.columns):
        found = {i: row.cells[j].value for i, row in enumerate(table.rows) if not row.quoted}
        values = [value for value in found.values() if value is not None]
        if column.better and len(set(values)) > 1:
            best = min(values) if column.better == "low" else max(values)
            places |= {(i, j) for i, value in found.items() if value == best}
    return places


def _chart_data(sections: Iterable[Sequence[Group]]) -> list[dict[str, Any]]:
    """The read-outs of all charts, in the order in which the page shows those that have any."""
    shown = [chart for groups in sections for group in groups for chart in group.charts]
    return [chart.data for chart in shown if chart.data is not None]
