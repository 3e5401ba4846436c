"""`gradreg report`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from gradreg.report.command import carry_out


@dataclass(frozen=True)
class Report:
    """Compare evaluations: one HTML page, or tables as Markdown, LaTeX, CSV or JSON, and figures."""

    evaluations: tyro.conf.Positional[tuple[Path, ...]]
    """What `gradreg evaluate` wrote: folders, or the evaluation.json in them."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write; default: report.html, and text formats to stdout."""
    format: Literal["html", "md", "tex", "csv", "json"] | None = None
    """Default: what the suffix of the output says."""
    figures: Path | None = None
    """A folder to draw figures to, as SVG, PNG and PDF."""
    paper: bool = False
    """Show the paper's own figures beside ours, marked as quoted."""

    def run(self) -> None:
        sys.exit(carry_out(self.evaluations, self.output, self.format, self.figures, self.paper, Console()))
