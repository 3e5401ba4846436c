"""Tables as text for papers, notebooks and programs. Names come from strangers' files, so each format escapes them."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Literal

from gradreg.report.tables.layout import Cell, Row, Table

Format = Literal["md", "tex", "csv", "json"]

_CSV_FIELDS = ("table", "row", "quoted", "column", "text", "value", "note")

_MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **{sign: f"\\{sign}" for sign in "\\`*_[]|~$#"}}
_TEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": r"\textasciigrave{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "–": "--", "…": r"\ldots{}"},
    **{"∞": r"$\infty$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "‖": r"$\|$", "∇": r"$\nabla$"},
    **{"ω": r"$\omega$", "σ": r"$\sigma$", "ε": r"$\varepsilon$", "λ": r"$\lambda$", "α": r"$\alpha$", "ℓ": r"$\ell$"},
}
# A spreadsheet takes a text that starts like this for a formula.
_FORMULA = re.compile(r"[=+\-@\t\r]")


def render(tables: Sequence[Table], format: Format, notes: Sequence[str] = ()) -> str:
    """All tables in one text, after the notes on the comparison."""
    return {"md": _markdown, "tex": _latex, "csv": _comma_separated, "json": _as_json}[format](tables, notes)


def _markdown(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """A heading, a caption and a pipe table each; notes of cells in small print, quoted rows in italics."""
    parts = [f"> {_markdown_text(note)}\n" for note in notes]
    for table in tables:
        title, caption = _markdown_text(table.title), _markdown_text(table.caption)
        parts += [f"## {title}\n\n{caption}\n\n{rows_only(table)}\n"]
    return "\n".join(parts)


def rows_only(table: Table) -> str:
    """A pipe table without its heading and caption."""
    lines = [
        _pipes(_markdown_text(heading) for heading in (table.of, *(column.heading for column in table.columns))),
        _pipes(["---", *["---:"] * len(table.columns)]),
        *(_pipes([_markdown_name(row), *map(_markdown_cell, row.cells)]) for row in table.rows),
    ]
    return "\n".join(lines)


def _latex(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """Table environments for a document with booktabs; a cell's note is below its text in small print."""
    head = [r"% Needs \usepackage{booktabs}.", *(f"% {_latex_text(note)}" for note in notes)]
    return "\n".join([*head, *map(_latex_table, tables)]) + "\n"


def _comma_separated(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """One line per cell, with its value at full precision; without the notes on the comparison."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_FIELDS)
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                value = "" if cell.value is None else repr(cell.value)
                words = map(_csv_text, (table.key, row.name, str(row.quoted).lower(), column.heading, cell.text))
                writer.writerow([*words, value, _csv_text(cell.note)])
    return text.getvalue()


def _as_json(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """The data structures as they are; signs that steer a terminal are escaped."""
    content = {"format": "gradreg report", "version": 1, "notes": list(notes), "tables": [asdict(t) for t in tables]}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text)


def _latex_text(text: str) -> str:
    """With every sign that means something to TeX, and the Greek ones that a plain font lacks, written out."""
    return "".join(_TEX.get(sign, sign) for sign in _one_line(text))


def _latex_table(table: Table) -> str:
    headings = " & ".join(["", *(_stacked(_halves(column.heading)) for column in table.columns)])
    ours, quoted = ([row for row in table.rows if row.quoted == wanted] for wanted in (False, True))
    body = [_latex_row(row) for row in ours]
    if quoted:
        body += [r"\midrule", *map(_latex_row, quoted)]
    return "\n".join(
        [
            "",
            r"\begin{table}",
            rf"  \caption{{{_latex_text(table.caption)}}}",
            rf"  \label{{tab:{table.key}}}",
            r"  \centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"  \begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"    \toprule",
            f"    {headings} \\\\",
            r"    \midrule",
            *(f"    {line}" for line in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


def _latex_row(row: Row) -> str:
    # One line for each part of a note, since tables are wide and pages are not.
    cells = [_stacked([cell.text], re.split(r"[,;] ", cell.note) if cell.note else []) for cell in row.cells]
    return " & ".join([_latex_text(row.name), *cells]) + r" \\"


def _stacked(lines: Sequence[str], small: Sequence[str] = ()) -> str:
    written = [*map(_latex_text, lines), *(rf"{{\tiny {_latex_text(line)}}}" for line in small)]
    return written[0] if len(written) == 1 else r"\shortstack[r]{" + r" \\ ".join(written) + "}"


def _halves(heading: str) -> list[str]:
    """A long heading on two lines, broken at the space nearest to its middle."""
    spaces = [match.start() for match in re.finditer(" ", heading)]
    if len(heading) < 12 or not spaces:
        return [heading]
    middle = min(spaces, key=lambda at: abs(at - len(heading) / 2))
    return [heading[:middle], heading[middle + 1 :]]


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_name(row: Row) -> str:
    return f"*{_markdown_text(row.name)}*" if row.quoted else _markdown_text(row.name)


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_text(cell.text)
    return f"{text} <sub>{_markdown_text(cell.note)}</sub>" if cell.note else text


def _markdown_text(text: str) -> str:
    return "".join(_MARKDOWN.get(sign, sign) for sign in _one_line(text))


def _csv_text(text: str) -> str:
    text = "\n".join(map(_one_line, text.split("\n")))
    return f"'{text}" if _FORMULA.match(text) else text


def _one_line(text: str) -> str:
    """Line ends, tabs and signs that steer a terminal or the direction of writing become spaces."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
