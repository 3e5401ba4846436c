"""What the report's pages share: templates beside this file, filters, and the policy that lets nothing else run."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gradreg.display.charts import Chart, Group, Key, legend_of
from gradreg.display.numbers import significant
from gradreg.extras import need
from gradreg.report.charts import svg
from gradreg.report.comparison import Comparison
from gradreg.report.page import choice
from gradreg.report.page.images import embedded
from gradreg.report.tables.layout import Table

if TYPE_CHECKING:
    from jinja2 import Environment


def rendered(
    template: str,
    comparison: Comparison,
    charts: dict[str, list[Group]],
    tables: Sequence[Table],
    assets: Sequence[str],
    /,
    **content: Any,
) -> str:
    """A page from its template: with style and script of those assets, charts by section, and its own content."""
    style = "".join(asset(f"{name}.css") for name in assets) + choice.rules(comparison)
    script = "".join(asset(f"{name}.js") for name in assets)
    return _environment().get_template(template).render(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        about=choice.About(comparison),
        charts=charts,
        chart_data=embedded(
            [data for chart in _all(*charts.values()) if (data := svg.readings(chart)) is not None]
        ),
        best={table.key: _best(table) for table in tables},
        **content,
    )  # fmt: skip


@cache
def _environment() -> "Environment":
    need("jinja2", "The HTML page")
    from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound, pass_context

    class Assets(BaseLoader):
        """Templates beside this file, wherever the package is installed."""

        def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, None]:
            try:
                return asset(template), None, None
            except FileNotFoundError as error:
                raise TemplateNotFound(template) from error

    environment = Environment(
        loader=Assets(), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["figure"] = lambda value: significant(value) if isinstance(value, float) else value
    environment.filters |= {"tight": _tight, "drawn": svg.draw, "read": svg.readings, "swatch": svg.swatch}
    environment.filters["legend"] = _legend
    environment.filters["about"] = pass_context(lambda context, part: context["about"].part(part))
    return environment


@cache
def asset(name: str) -> str:
    """The text of a file beside this one."""
    return files("gradreg.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy knows an inline style or script by, so that no other is ever run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _tight(text: str) -> str:
    """No line ends inside an interval, or between a figure and its sign."""
    for loose, tight in ((" %", " %"), ("n = ", "n = "), ("–", "–\N{WORD JOINER}"), ("-bound", "‑bound")):
        text = text.replace(loose, tight.replace(" ", "\N{NO-BREAK SPACE}"))
    return text


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


def _all(*sections: Sequence[Group]) -> list[Chart]:
    """In the order of the page, where a narrow drawing follows its wide one."""
    shown = (chart for groups in sections for group in groups for chart in group.charts)
    return [each for chart in shown for each in (chart, chart.narrow) if each is not None]


def _legend(groups: Iterable[Group]) -> list[Key]:
    """Of charts that are shown together; a model by itself needs no entry."""
    keys = legend_of(_all(list(groups)))
    models = [key for key in keys if key.model is not None]
    return keys if len(models) > 1 else [key for key in keys if key.model is None]
