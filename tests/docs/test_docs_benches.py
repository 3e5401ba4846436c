"""Tables from the file of `python -m bench attacks`, on made-up rows."""

from dataclasses import asdict
from pathlib import Path

import pytest

from bench.attacks import Equal, RadiusRow, Row
from bench.attacks_report import Report
from bench.record import write_json
from docs.make.benches import attacks_table, read
from docs.make.fill import fill
from gradreg.errors import DataError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """As the command writes it: an attack that failed on most images, and one that could not be run."""
    report = Report(
        [
            Row("plain", "l2", "standard", 1.0, 1.00004, 1.0, 1.0, 500.0, 378.0, 880, 3.5, 4.0),
            Row("plain", "l2", "other", float("inf"), float("inf"), 1.2, 0.3, 1000.5, 0.0, None, 12.0, 13.0),
            Row("plain", "l2", "third", note="not installed"),
        ],
        [RadiusRow("plain", "linf", 8 / 255, "standard", 0.305, 200.0, 100.0, 1.0, 2.0)],
        [Equal("plain", "C&W 9×1000", 0.99, 0.1, 0.2, 0.3)],
        200,
    )
    about = {"options": {"images": 200, "data": "cifar10", "seed": 0}, "peers": {"foolbox": "3.3.4", "art": None}}
    machine = {"processor": "A", "torch": "2", "threads": 1, "commit": "abc"}
    targets = [{"promise": "plain: p90 ≤ 1.03", "found": "1.0000", "met": met} for met in (True, False, None)]
    path = tmp_path / "found.json"
    write_json(path, {**about, "machine": machine, **asdict(report), "targets": targets})
    return path


def test_the_tables_show_what_was_found(file: Path) -> None:
    found = read(file)
    table = attacks_table(["distances", "l2"], found)
    assert table.caption.endswith(
        "n = 200 images of cifar10, seed 0, commit abc; A, 1 thread(s), torch 2; foolbox 3.3.4."
    )
    shown = {row.name: [cell.text for cell in row.cells] for row in table.rows}
    assert shown["standard"] == ["1.0000", "1.0000", "878", "3.50"]
    assert shown["other"] == ["∞", "∞", "1,000", "12.0"]
    assert shown["third"] == ["not installed", "–", "–", "–"]
    (at,) = attacks_table(["radius"], found).rows
    assert (at.name, *(cell.text for cell in at.cells)) == ("plain, l∞ 8/255", "standard", "30.5 %", "300", "1.00")
    (equal,) = attacks_table(["equal"], found).rows
    assert [cell.text for cell in equal.cells] == ["0.990×", "0.300×", "0.100×"]
    assert [row.cells[1].text for row in attacks_table(["targets"], found).rows] == ["met", "missed", "not measured"]


def test_a_page_is_filled_from_the_file(file: Path) -> None:
    (file.parent / "pyproject.toml").touch()
    page = file.with_name("page.md")
    page.write_text("<!-- gradreg: attacks equal from found.json -->\n<!-- gradreg: end -->\n")
    assert fill(page)
    assert "| network and attack | distance | propagations | seconds |" in page.read_text()


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (
            "attacks sideways from found.json",
            "must be one of distances l2, .*; got 'sideways'",
        ),
        ("attacks radius from page.md", "must be a file that `python -m bench attacks --json` wrote; got "),
        ("attacks radius from nowhere.json", "must be a file that `python -m bench attacks --json` wrote; got "),
    ],
)
def test_a_mark_that_cannot_be_followed_is_explained(file: Path, mark: str, message: str) -> None:
    (file.parent / "pyproject.toml").touch()
    page = file.with_name("page.md")
    page.write_text(f"<!-- gradreg: {mark} -->\n<!-- gradreg: end -->\n")
    with pytest.raises(DataError, match=message):
        fill(page)
