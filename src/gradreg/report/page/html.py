"""The report as one HTML file: it needs no network, no script to be read, and prints."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from gradreg.display.charts import Chart, Group, Key, legend_of
from gradreg.display.numbers import significant
from gradreg.evaluation.shares import top_k
from gradreg.extras import need
from gradreg.report.charts import svg
from gradreg.report.charts.selection import sections
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import ball
from gradreg.report.numbers import images as counted
from gradreg.report.page import choice, images, provenance
from gradreg.report.page.gallery import walls
from gradreg.report.page.glossary import GLOSSARY
from gradreg.report.page.verdict import cards, leaders, refusals, sorted_flags
from gradreg.report.tables.layout import Table
from gradreg.report.tables.registry import is_papers, tables

if TYPE_CHECKING:
    from jinja2 import Environment


def render(comparison: Comparison, paper: bool = False) -> str:
    """The whole page. With `paper`, the paper's own rows are quoted below ours."""
    style = _asset("report.css") + _asset("images.css") + choice.rules(comparison)
    script = _asset("report.js") + _asset("images.js")
    charts = sections(comparison)
    exhibits, reduced = walls(comparison)
    built = tables(comparison, paper)
    provenances = [provenance.of(evaluation) for evaluation in comparison.evaluations]
    about = choice.About(comparison)
    return _environment().get_template("report.html.j2").render(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        title=_title(comparison),
        scope=_scope(comparison),
        remarks=comparison.notes,
        keys=[Key(name, number) for number, name in enumerate(comparison.names)],
        symbols=[comparison.symbol(threat) for threat in comparison.threats],
        compared=[(threat, _compared_at(comparison, threat)) for threat in comparison.threats],
        words=lambda text: top_k(text, comparison.topk),
        about=about,
        cards=cards(comparison),
        leaders=leaders(comparison),
        tables=[table for table in built if not is_papers(table)],
        papers=[table for table in built if is_papers(table)],
        best={table.key: _best(table) for table in built},
        charts=charts,
        chart_data=images.embedded(
            [data for chart in _all(*charts.values()) if (data := svg.readings(chart)) is not None]
        ),
        legends={key: _legend(groups) for key, groups in charts.items()},
        refusals=refusals(comparison),
        walls=exhibits,
        reduced=reduced,
        image_data=images.embedded(images.data(comparison)),
        flags=sorted_flags(comparison),
        provenances=provenances,
        shared=provenance.shared(provenances),
        glossary=GLOSSARY,
    )  # fmt: skip


@cache
def _environment() -> "Environment":
    need("jinja2", "The HTML page")
    from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound, pass_context

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
    environment.filters |= {"tight": _tight, "drawn": svg.draw, "read": svg.readings, "swatch": svg.swatch}
    environment.filters["about"] = pass_context(lambda context, part: context["about"].part(part))
    return environment


@cache
def _asset(name: str) -> str:
    return files("gradreg.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy knows an inline style or script by, so that no other is ever run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _tight(text: str) -> str:
    """No line ends inside an interval, or between a figure and its sign."""
    for loose, tight in ((" %", " %"), ("n = ", "n = "), ("–", "–\N{WORD JOINER}"), ("-bound", "‑bound")):
        text = text.replace(loose, tight.replace(" ", "\N{NO-BREAK SPACE}"))
    return text


def _title(comparison: Comparison) -> str:
    names = comparison.names
    return f"How robust is “{names[0]}”?" if len(names) == 1 else f"How robust are {len(names)} models?"


def _scope(comparison: Comparison) -> str:
    data = comparison.evaluations[0].data
    return f"{data.name}, {counted(map(len, comparison.evaluations))} of {data.images:,} in the test set"


def _best(table: Table) -> set[tuple[int, int]]:
    """Places of the best value of each column where low or high is better, if values differ."""
    places = set()
    for j, column in enumerate(table.columns):
        found = {i: row.cells[j].value for i, row in enumerate(table.rows) if not row.quoted}
        values = [value for value in found.values() if value is not None]
        if column.better and len(set(values)) > 1:
            best = min(values) if column.better == "low" else max(values)
            places |= {(i, j) for i, value in found.items() if value == best}
    return places


def _compared_at(comparison: Comparison, threat: str) -> str:
    return ball(comparison.symbol(threat), comparison.main_radius(threat))


def _all(*sections: Sequence[Group]) -> list[Chart]:
    """In the order of the page, where a narrow drawing follows its wide one."""
    shown = (chart for groups in sections for group in groups for chart in group.charts)
    return [each for chart in shown for each in (chart, chart.narrow) if each is not None]


def _legend(groups: Sequence[Group]) -> list[Key]:
    """Of a section; a model by itself needs no entry."""
    keys = legend_of(_all(groups))
    models = [key for key in keys if key.model is not None]
    return keys if len(models) > 1 else [key for key in keys if key.model is None]
