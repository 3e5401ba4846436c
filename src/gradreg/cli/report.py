"""`gradreg report`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from gradreg.cli.arguments import say
from gradreg.errors import ConfigError
from gradreg.report.writing import check_output, compare, draw, format_of, render, render_difference, write


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
    diff: bool = False
    """Of two evaluations: what changed from the first to the second, and is it more than chance?"""

    def run(self) -> None:
        output = self.output
        if output is None and self.format in (None, "html"):
            output = Path("report.html")
        format = self.format or format_of(output or Path("report.html"))
        if output is not None:
            check_output(output)
        # On stderr, so that a report on stdout can be piped.
        aside = Console(stderr=True)
        if self.diff:
            if self.paper or self.figures is not None:
                raise ConfigError("--diff shows what changed and nothing else; leave out --paper and --figures.")
            text, sentences = render_difference(self.evaluations, format)
            self._write(text, output, aside, sentences)
            return
        comparison = compare(self.evaluations)
        self._write(render(comparison, format, self.paper), output, aside, comparison.notes)
        if self.figures is not None:
            say(aside, f"{len(draw(comparison, self.figures))} figure files are in {self.figures}.")

    @staticmethod
    def _write(text: str, output: Path | None, aside: Console, notes: Sequence[str]) -> None:
        for note in notes:
            say(aside, note)
        if output is None:
            sys.stdout.write(text)
        else:
            write(output, text)
            say(aside, f"The report is in {output}.")
