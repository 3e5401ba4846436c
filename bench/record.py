"""Figures as a JSON file, and what was promised about them."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from gradreg.writing import write_text


@dataclass(frozen=True)
class Target:
    """What was promised, and whether it holds; None: it could not be measured."""

    promise: str
    found: str
    met: bool | None


def write_json(path: Path, content: dict[str, object]) -> None:
    """To the side, then renamed; figures that are not finite become null, which JSON has no number for."""
    write_text(path, json.dumps(_finite(content), indent=1, ensure_ascii=False) + "\n")


def target_table(targets: list[Target]) -> Table:
    """Promises and what became of them."""
    table = plain_table("targets", ("target", "found", ""), left=3)
    for target in targets:
        table.add_row(target.promise, target.found, {True: "met", False: "missed", None: "not measured"}[target.met])
    return table


def plain_table(title: str, headings: tuple[str, ...], left: int) -> Table:
    """A table whose first `left` columns are text and the others figures."""
    table = Table(title=title, title_style="")
    for column, heading in enumerate(headings):
        table.add_column(heading, justify="left" if column < left else "right")
    return table


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
