"""`gradreg runs`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gradreg.report.writing import runs_text, write


@dataclass(frozen=True)
class Runs:
    """Compare training runs: the settings that differ, accuracy, and cost."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories to compare."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write; default: stdout."""
    format: Literal["md", "tex", "csv", "json"] = "md"
    """Markdown, LaTeX, CSV or JSON."""

    def run(self) -> None:
        text = runs_text(self.runs, self.format)
        if self.output is None:
            sys.stdout.write(text)
        else:
            write(self.output, text)
            sys.stdout.write(f"The table is in {self.output}.\n")
