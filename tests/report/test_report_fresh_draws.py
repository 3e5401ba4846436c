"""Randomised models in the report: a table and a figure of fixed and fresh draws, and neither for other models."""

from dataclasses import replace

import pytest
import torch

from gradreg.evaluation.fresh import FreshDraws
from gradreg.evaluation.record import Evaluation
from gradreg.report.charts.fresh import redrawn_curves
from gradreg.report.comparison import Comparison
from gradreg.report.page.html import render
from gradreg.report.tables.registry import tables
from handmade import handmade, renamed


def randomised() -> Evaluation:
    """Ten images at l2 distances 0, 0.1 … 0.9, the first misclassified; fresh draws are fooled by all but the last."""
    evaluation, n = handmade(), 10
    clean = torch.arange(n) == 0
    wrong = torch.arange(n) < 9
    fresh = FreshDraws(20, wrong, torch.where(wrong, 0.9, 0.4))
    threats = {name: replace(record, fresh=fresh) for name, record in evaluation.threats.items()}
    shares = FreshDraws(20, clean, torch.where(clean, 0.9, 0.0))
    return renamed(replace(evaluation, threats=threats, fresh=shares), "noisy")


def test_the_table_has_both_draws_at_every_radius() -> None:
    table = next(each for each in tables(Comparison.of([randomised(), handmade()])) if each.key == "fresh-draws")
    rows = {row.name: row for row in table.rows}
    assert next(iter(rows)) == "noisy, clean"
    assert {row.models for row in table.rows} == {("noisy",)}, "other models have no draws"
    fixed, fresh, one, still, single = rows["noisy, l2 at 1"].cells
    assert [cell.text for cell in (fixed, fresh, one, still, single)] == [
        "0.0 %",
        "10.0 %",
        "15.0 %",
        "88.9 %",
        "84.4 %",
    ]
    assert still.note == "8 of 9"
    # Clean: the misclassified image fails 90 % of single draws, the others none.
    assert [cell.value for cell in rows["noisy, clean"].cells[:3]] == pytest.approx([0.9, 0.9, 0.91])
    assert "20 fixed draws" in table.caption


def test_the_figure_has_both_curves_and_the_marks_of_one_draw() -> None:
    comparison = Comparison.of([randomised(), handmade()])
    charts = redrawn_curves(comparison)
    assert [chart.title for chart in charts] == ["noisy, l∞", "noisy, l2"]
    fixed, fresh, one = charts[1].series
    assert (fixed.look, fresh.look, one.kind) == ("solid", "dashed", "marks")
    assert (fixed.y[-1], fresh.y[-1]) == (0.0, 0.1)
    assert one.x[0] == 0
    assert one.y[0] == pytest.approx(0.91)
    assert "under fresh draws" in charts[1].alt


def test_the_page_has_a_section_for_randomised_models_alone() -> None:
    page = render(Comparison.of([randomised(), handmade()]))
    assert 'id="fresh"' in page
    assert "<dt>Fresh draws</dt>" in page
    ordinary = render(Comparison.of([handmade()]))
    assert "fresh draw" not in ordinary.lower()
