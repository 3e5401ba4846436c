"""What is written can be read back, whatever the models are called."""

import csv
import html
import io
import json
import re
from dataclasses import asdict
from typing import get_args

import pytest

from gradreg.report.comparison import Comparison
from gradreg.report.tables.formats import _CSV_FIELDS, Format, _latex_text, render
from gradreg.report.tables.layout import Table
from gradreg.report.tables.registry import tables
from handmade import handmade

HOSTILE = "a|b <script>alert(1)</script> & 50 % of_it\n{x} \\input{y} $m$ #1 ~^`*[l](u)"


def hostile() -> list[Table]:
    return tables(Comparison.of([handmade(HOSTILE), handmade("=1+1")]), paper=True)


def markdown_cells(line: str) -> list[str]:
    """As a reader of pipe tables splits and shows them."""
    cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
    return [html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cell.strip())) for cell in cells]


def test_markdown_reads_back() -> None:
    found = hostile()
    parts = render(found, "md").split("## ")[1:]
    assert len(parts) == len(found)
    for table, part in zip(found, parts, strict=True):
        heads, rule, *lines = [markdown_cells(line) for line in part.splitlines() if line.startswith("|")]
        assert heads == [table.of, *(column.heading for column in table.columns)]
        assert rule == ["---", *["---:"] * len(table.columns)]
        for row, line in zip(table.rows, lines, strict=True):
            name = row.name.replace("\n", " ")
            assert line[0] == (f"*{name}*" if row.quoted else name)
            assert [cell.split(" <sub>")[0] for cell in line[1:]] == [cell.text for cell in row.cells]


def test_markdown_lets_no_tag_and_no_link_through() -> None:
    text = render(hostile(), "md", ["<img src=x>"])
    assert set(re.findall(r"<[^>]*>", text)) == {"<sub>", "</sub>"}
    assert not re.search(r"(?<!\\)\[", text)
    assert text.startswith("> &lt;img src=x&gt;\n")


def test_json_is_the_data_itself() -> None:
    found = hostile()
    read = json.loads(render(found, "json", ["One note."]))
    assert read["notes"] == ["One note."]
    assert read["tables"] == json.loads(json.dumps([asdict(table) for table in found]))
    cell = read["tables"][0]["rows"][0]["cells"][1]
    assert cell == {"text": "90.0 %", "value": 0.9, "note": "55.5–99.7 %, n = 10"}


def test_csv_keeps_every_figure_to_the_last_digit() -> None:
    found = hostile()
    lines = list(csv.DictReader(io.StringIO(render(found, "csv"))))
    expected = [
        (t, row, c, cell) for t in found for row in t.rows for c, cell in zip(t.columns, row.cells, strict=True)
    ]
    assert tuple(lines[0]) == _CSV_FIELDS
    for line, (table, row, column, cell) in zip(lines, expected, strict=True):
        assert (line["table"], line["row"].removeprefix("'"), line["column"]) == (table.key, row.name, column.heading)
        assert line["quoted"] == str(row.quoted).lower()
        assert (float(line["value"]) if line["value"] else None) == cell.value
        assert (line["text"], line["note"]) == (cell.text, cell.note)


def test_csv_gives_a_spreadsheet_no_formula() -> None:
    fields = [field for line in csv.reader(io.StringIO(render(hostile(), "csv"))) for field in line]
    assert any(field.startswith("'=1+1") for field in fields)
    assert not any(field.startswith(("=", "+", "@")) for field in fields)


def test_latex_has_as_many_cells_as_columns_and_closes_what_it_opens() -> None:
    found = hostile()
    text = render(found, "tex", ["50 % & more"])
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(found)
    assert text.splitlines()[1] == r"% 50 \% \& more"
    bare = re.sub(r"\\[{}\\]", "", text)
    assert bare.count("{") == bare.count("}")
    blocks = re.findall(r"\\begin\{tabular\}\{l(r+)\}(.*?)\\end\{tabular\}", text, re.S)
    for table, (columns, body) in zip(found, blocks, strict=True):
        assert len(columns) == len(table.columns)
        lines = [line for line in body.splitlines() if line.rstrip().endswith(r"\\")]
        assert len(lines) == 1 + len(table.rows)
        assert all(len(re.findall(r"(?<!\\)&", line)) == len(columns) for line in lines)
    assert not re.search(r"[ωεσλ∞≥≤×–‖∇ℓ]", text)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50 % & a_b", r"50 \% \& a\_b"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("a\nb\t<c>", r"a b \textless{}c\textgreater{}"),
        ("l∞, ω ≥ 1 – 2×", r"l$\infty$, $\omega$ $\geq$ 1 -- 2$\times$"),
        ("$x$ ~ ^ # |", r"\$x\$ \textasciitilde{} \textasciicircum{} \# \textbar{}"),
    ],
)
def test_latex_escapes(text: str, escaped: str) -> None:
    assert _latex_text(text) == escaped


def test_quoted_rows_stand_apart_in_latex() -> None:
    table = next(table for table in tables(Comparison.of([handmade()]), paper=True) if table.key == "table-5")
    body = render([table], "tex")
    assert body.index("by hand") < body.rindex(r"\midrule") < body.index("paper, CIFAR-10")


def test_signs_that_turn_the_writing_around_are_taken_out() -> None:
    found = tables(Comparison.of([handmade("abc\u202etxt\x1b[31m")]))
    for text in (render(found, "md"), render(found, "tex")):
        assert not any(sign in text for sign in "\u202e\x1b")


def test_render_knows_every_format() -> None:
    begins = {
        "md": "> n\n\n## Robust accuracy",
        "tex": "% Needs",
        "csv": ",".join(_CSV_FIELDS),
        "json": '{\n "format": ',
    }
    assert set(begins) == set(get_args(Format))
    for format, first in begins.items():
        assert render(tables(Comparison.of([handmade()])), format, ["n"]).startswith(first)  # type: ignore[arg-type]
