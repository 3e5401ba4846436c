"""Figures as a JSON file, with the machine that gave them, and what was promised about them."""

import json
import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table

from gradreg.storage import replacing


@dataclass(frozen=True)
class Target:
    """What was promised, and whether it holds; None: it could not be measured."""

    promise: str
    found: str
    met: bool | None


def write_json(path: Path, content: dict[str, object]) -> None:
    """To the side, then renamed; figures that are not finite become null, which JSON has no number for."""
    with replacing(path) as aside:
        aside.write_text(json.dumps(_finite(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def machine() -> dict[str, object]:
    """What seconds depend on."""
    return {"processor": _processor(), "torch": torch.__version__, "threads": torch.get_num_threads()}


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


def _processor() -> str:
    """The name that Linux knows, since `platform.processor` knows none there."""
    names = Path("/proc/cpuinfo")
    lines = names.read_text(encoding="utf-8").splitlines() if names.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return f"{next(named, platform.processor())}, {os.cpu_count()} cores"


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
