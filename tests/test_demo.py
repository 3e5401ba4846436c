"""The tour, cut short: it leaves runs, evaluations and a page whose figures are those of the evaluations."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gradreg.demo import _RECIPES, DemoError, demo
from gradreg.report.comparison import Comparison
from gradreg.report.writing import render


def told(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.fixture
def console() -> Console:
    return Console(file=StringIO(), width=120)


@pytest.mark.slow
def test_the_tour_writes_a_complete_report_that_agrees_with_its_evaluations(tmp_path: Path, console: Console) -> None:
    found = demo(tmp_path, images=16, epochs=2, seed=0, data_dir=None, console=console)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(found) == set(_RECIPES)
    parts = [f"t-table-{number}" for number in range(1, 6)]
    for part in (*parts, "curves", "frontier", "gallery", "gaps", "diagnosis"):
        assert f'id="{part}"' in page
    tables = {
        table["key"]: table for table in json.loads(render(Comparison.of(list(found.values())), "json"))["tables"]
    }
    for recipe, evaluation in found.items():
        distance = evaluation.threats["l2"].mean_distance()
        row = next(row for row in tables["table-2"]["rows"] if row["name"] == recipe)
        values = [cell["value"] for cell in row["cells"]]
        assert pytest.approx(distance) in values
        assert f"{distance:.2f}" in told(console)
        assert evaluation.subject.hours is not None
    assert "times further away" in told(console)
    assert (tmp_path / "report.html").resolve().as_uri() in told(console).replace("\n", "")

    again = demo(tmp_path, images=16, epochs=2, seed=0, data_dir=None, console=console)
    assert {name: one.subject.hours for name, one in again.items()} == {n: o.subject.hours for n, o in found.items()}


def test_a_step_that_fails_ends_the_tour_with_its_sentence(tmp_path: Path, console: Console) -> None:
    with pytest.raises(DemoError, match=r"gradreg train .* ended with status 2: .*epochs"):
        demo(tmp_path, images=16, epochs=-1, seed=0, data_dir=None, console=console)
