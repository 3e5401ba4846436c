"""From evaluations, or the folders they were saved to, to a report in one file."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

from gradreg.checks.calls import validated
from gradreg.checks.objects import check_several
from gradreg.checks.scalars import check_path, check_switch
from gradreg.errors import ConfigError
from gradreg.evaluation.files import FACTS, TABLE, load
from gradreg.evaluation.record import Evaluation
from gradreg.extras import need
from gradreg.locks import lock_output
from gradreg.report.comparison import Comparison
from gradreg.report.tables import formats
from gradreg.report.tables.registry import tables
from gradreg.runs.directory import CONFIG
from gradreg.writing import write_text

_Given = str | os.PathLike[str] | Evaluation
Format = Literal["html", "md", "tex", "csv", "json"]

# What evaluations, runs and interrupted work are kept in.
_OTHERS = (FACTS, TABLE, CONFIG, "metrics.jsonl", "steps.jsonl", "begun.json")
_ENDINGS: dict[str, Format] = {".htm": "html", **{f".{format}": format for format in get_args(Format)}}


@validated
def report(
    evaluations: _Given | Iterable[_Given],
    output: str | os.PathLike[str] = "report.html",
    *,
    paper: bool = False,
    figures: str | os.PathLike[str] | None = None,
    diff: bool = False,
) -> Path:
    """Write a report that compares evaluations, or the folders they were saved to; its path.

    The ending of `output` names the format: .html, .md, .tex, .csv or .json. With `paper`, the paper's own rows are
    quoted below ours; `figures` is a folder to write figures to, as SVG, PNG and PDF. With `diff`, two evaluations are
    compared image by image: what changed from the first to the second, and whether it is more than chance.
    """
    check_switch("diff", diff)
    if diff and (paper or figures is not None):
        raise ConfigError("diff shows what changed and nothing else; leave out paper and figures.")
    check_switch("paper", paper)
    path, folder = check_path("output", output), None if figures is None else check_path("figures", figures)
    format = format_of(path)
    check_output(path)
    if format == "html":
        need("jinja2", "The HTML page")
    if folder is not None:
        need("matplotlib", "Drawing figures")
    given = [evaluations] if isinstance(evaluations, str | os.PathLike | Evaluation) else evaluations
    if diff:
        write(path, render_difference(given, format)[0])
        return path
    comparison = compare(given)
    write(path, render(comparison, format, paper))
    if folder is not None:
        draw(comparison, folder)
    return path


def compare(evaluations: Iterable[_Given]) -> Comparison:
    """Evaluations, or the folders they were saved to, checked and prepared for a report."""
    return Comparison.of(_read(evaluations))


def _read(evaluations: Iterable[_Given]) -> list[Evaluation]:
    given = check_several("evaluations", evaluations, "evaluations, or folders that hold them")
    return [each if isinstance(each, Evaluation) else load(each) for each in given]


def render(comparison: Comparison, format: Format, paper: bool = False) -> str:
    """The whole report in that format."""
    if format == "html":
        from gradreg.report.page import html

        return html.render(comparison, paper)
    if format not in get_args(Format):
        raise ConfigError(f"format must be one of {', '.join(get_args(Format))}; got {format!r}.")
    return formats.render(tables(comparison, paper), format, comparison.notes)


def render_difference(evaluations: Iterable[_Given], format: Format) -> tuple[str, list[str]]:
    """What changed between two evaluations, in that format; and the answer in sentences."""
    from gradreg.report.tables.changes import changes
    from gradreg.report.tables.difference import Difference

    found = Difference.of(_read(evaluations))
    if format == "html":
        from gradreg.report.page import difference

        return difference.render(found), found.sentences()
    most = None if format in ("csv", "json") else 100
    notes = [*found.sentences(), *found.comparison.notes]
    return formats.render(changes(found, most), format, notes), found.sentences()


def draw(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the figures to a folder, as SVG, PNG and PDF; the files written."""
    from gradreg.report.charts import files

    return files.draw(comparison, folder)


def runs_text(folders: Sequence[Path], format: formats.Format) -> str:
    """Training runs side by side, as a table in that format."""
    from gradreg.report.tables.runs import read, runs_table

    return formats.render([runs_table([read(folder) for folder in folders])], format)


def format_of(path: Path) -> Format:
    """The format that the ending of a file's name asks for."""
    if path.suffix.lower() not in _ENDINGS:
        raise ConfigError(f"The name of a report must end in one of {', '.join(_ENDINGS)}; got {path}.")
    return _ENDINGS[path.suffix.lower()]


def check_output(path: Path) -> None:
    """Refuse to write a report over what it is made of, the files of evaluations and runs, or over a folder."""
    if path.is_dir():
        raise ConfigError(f"A report must be written to a file; got the folder {path}.")
    name = os.path.basename(os.path.realpath(path)).lower()
    if name in _OTHERS or name.endswith(".safetensors"):
        raise ConfigError(f"A report must not be written to {path}: {name} is a file of evaluations or runs.")


def write(path: Path, text: str) -> None:
    """Write a report, as the only one who writes to that file."""
    check_output(path)
    with lock_output(path):
        write_text(path, text)
