"""What a reader can hide: whatever belongs to a model or a threat carries a class, and a checkbox rules it.

The rules are style alone, so that choosing needs no script.
"""

from collections.abc import Sequence

from gradreg.display.charts import Chart, Group
from gradreg.report.comparison import Comparison
from gradreg.report.tables.layout import Column, Row


def rules(comparison: Comparison) -> str:
    """For the style sheet: what the box of a model or threat hides while it is not checked."""
    models = [f"m{number}" for number in range(len(comparison.names))]
    threats = [f"t{number}" for number in range(len(comparison.threats))]
    return "".join(f"body:has(#show-{name}:not(:checked)) .{name} {{ display: none; }}\n" for name in models + threats)


class About:
    """The classes of a part of the page: m0 for the first model, t0 for the first threat, several with spaces."""

    def __init__(self, comparison: Comparison) -> None:
        self._models = {name: number for number, name in enumerate(comparison.names)}
        self._threats = {name: number for number, name in enumerate(comparison.threats)}

    def __call__(self, models: Sequence[str] = (), threat: str = "") -> str:
        """By names."""
        return self._classes([self._models[name] for name in models], threat)

    def part(self, part: Chart | Group | Row | Column) -> str:
        """Of what knows itself what it is about; a chart of several models is about none of them."""
        match part:
            case Chart():
                return self._classes(list(part.models) if len(part.models) == 1 else [], part.threat)
            case Group():
                threats = {chart.threat for chart in part.charts}
                return self._classes([], threats.pop() if len(threats) == 1 else "")
            case Row():
                return self(part.models, part.threat)
            case Column():
                return self._classes([], part.threat)

    def _classes(self, models: Sequence[int], threat: str) -> str:
        threats = [f"t{self._threats[threat]}"] if threat in self._threats else []
        return " ".join([*(f"m{number}" for number in models), *threats])
