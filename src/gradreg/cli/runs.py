"""`gradreg runs`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gradreg.report.command import compare_runs


@dataclass(frozen=True)
class Runs:
    """Compare training runs: the settings that differ, accuracy, and cost."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write; default: stdout."""
    format: Literal["md", "tex", "csv", "json"] = "md"

    def run(self) -> None:
        sys.stdout.write(compare_runs(self.runs, self.format, self.output, None))
