"""From evaluations, or the folders they were saved to, to a report in one file."""

import os
from collections.abc import Iterable
from pathlib import Path

from gradreg.evaluation.files import load
from gradreg.evaluation.record import Evaluation
from gradreg.report import command

Given = str | os.PathLike[str] | Evaluation


def report(
    evaluations: Given | Iterable[Given],
    output: str | os.PathLike[str] = "report.html",
    *,
    paper: bool = False,
    figures: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a report on evaluations, or on the folders they were saved to, side by side; its path.

    The ending of `output` names the format: .html, .md, .tex, .csv or .json. With `paper`, the paper's own figures
    stand beside; `figures` is a folder to draw to.
    """
    path = Path(output)
    format = command.format_of(path)
    given = [evaluations] if isinstance(evaluations, str | os.PathLike | Evaluation) else list(evaluations)
    found = [one if isinstance(one, Evaluation) else load(one) for one in given]
    command.write(path, command.text(found, format, paper))
    if figures is not None:
        from gradreg.report.figures import draw

        draw(found, Path(figures))
    return path
