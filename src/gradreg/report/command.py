"""What `gradreg report` does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from rich.console import Console

from gradreg.errors import ConfigError, DataError
from gradreg.evaluation.files import load
from gradreg.evaluation.record import Evaluation
from gradreg.report.compare import check_comparable, with_distinct_names
from gradreg.report.formats import Format as TextFormat
from gradreg.report.formats import render
from gradreg.report.tables import tables
from gradreg.storage import replacing

Format = Literal["html", "md", "tex", "csv", "json"]

_ENDINGS: dict[str, Format] = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".tex": "tex",
    ".csv": "csv",
    ".json": "json",
}


def carry_out(
    evaluations: Sequence[Path],
    output: Path | None,
    format: Format | None,
    figures: Path | None,
    paper: bool,
    console: Console,
) -> int:
    """Write the report, and the figures if asked; without an output file, text formats go to the console.

    The format is that of the output's ending unless it is given; with neither, it is a page, report.html.
    What is said about it goes to stderr, so that a report on stdout can be piped.
    """
    if output is None and format in (None, "html"):
        output = Path("report.html")
    format = format or format_of(output or Path("report.html"))
    aside = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    found = [load(path) for path in evaluations]
    for note in check_comparable(found):
        aside.print(note)
    content = text(found, format, paper)
    if output is None:
        console.out(content, end="", highlight=False)
    else:
        write(output, content)
        aside.print(f"The report is in {output}.")
    if figures is not None:
        from gradreg.report.figures import draw

        aside.print(f"{len(draw(found, figures))} figure files are in {figures}.")
    return 0


def compare_runs(folders: Sequence[Path], format: TextFormat, output: Path | None) -> str:
    """What `gradreg runs` does: the table, or the sentence about where it was written."""
    from gradreg.report.runs import read, runs_table

    runs = [read(folder) for folder in folders]
    content = render([runs_table(runs)], format)
    if output is None:
        return content
    write(output, content)
    return f"The table is in {output}.\n"


def format_of(path: Path) -> Format:
    """What the ending of a file's name asks for."""
    if path.suffix.lower() not in _ENDINGS:
        raise ConfigError(f"{path} does not say what to write: let its name end in one of {', '.join(_ENDINGS)}.")
    return _ENDINGS[path.suffix.lower()]


def text(evaluations: Sequence[Evaluation], format: Format, paper: bool) -> str:
    """The whole report in that format."""
    notes = check_comparable(evaluations)
    evaluations = with_distinct_names(evaluations)
    if format == "html":
        from gradreg.report import page

        return page.render(evaluations, paper)
    if format not in get_args(Format):
        raise ConfigError(f"There is no format {format!r}: a report is one of {', '.join(get_args(Format))}.")
    return render(tables(evaluations, paper), format, notes)


def write(path: Path, content: str) -> None:
    """To the side, then renamed; half a surrogate pair, from a file's name, is written as its escape."""
    try:
        with replacing(path) as aside:
            aside.write_bytes(content.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise DataError(f"The report could not be written to {path} ({error}): choose another place.") from error
