"""Runs of one recipe: mean and spread by hand, in a table and in charts."""

from dataclasses import replace
from statistics import stdev

import pytest
import torch
from generated import generated

from gradreg.evaluation.record import Evaluation
from gradreg.report.charts import svg
from gradreg.report.charts.builders import frontiers
from gradreg.report.charts.seeds import spreads
from gradreg.report.comparison import Comparison
from gradreg.report.page.html import render
from gradreg.report.tables.registry import tables
from handmade import handmade, renamed


def run(seed: int, further: float = 0.0, name: str = "penalty") -> Evaluation:
    """Ten images at l2 distances 0, 0.1 … 0.9, and so much further; the first is misclassified."""
    evaluation = renamed(handmade(), f"{name}-seed{seed}", recipe={"objective": name, "seed": seed})
    record = evaluation.threats["l2"]
    distance = torch.where(record.attacked.distance > 0, record.attacked.distance + further, 0.0)
    moved = replace(record, attacked=replace(record.attacked, distance=distance))
    return replace(evaluation, threats={**evaluation.threats, "l2": moved}, clean=None)


def test_mean_and_spread_over_seeds() -> None:
    """Robust at 0.5 are 4, 6 and 8 of ten images."""
    found = [run(0), run(1, 0.2), run(2, 0.4), run(0, name="other")]
    table = next(each for each in tables(Comparison.of(found)) if each.key == "seeds")
    assert [row.name for row in table.rows] == ["penalty"], "a recipe that was trained once has no spread"
    headings = [column.heading for column in table.columns]
    cell = table.rows[0].cells[headings.index("l2 at 0.5")]
    assert cell.text == "60.0 %"
    assert cell.value == pytest.approx(0.6)
    assert cell.note == f"± {100 * stdev([0.4, 0.6, 0.8]):.1f}, 40.0–80.0 %, 3 runs"
    assert table.rows[0].cells[0].text == "90.0 %"
    assert table.rows[0].cells[-1].text == "0, 1, 2"
    assert table.rows[0].models == ("penalty-seed0", "penalty-seed1", "penalty-seed2")


def test_a_run_without_a_threat_is_left_out_of_it() -> None:
    partial = replace(run(1), threats={"linf": run(1).threats["linf"]})
    table = next(each for each in tables(Comparison.of([run(0), partial])) if each.key == "seeds")
    headings = [column.heading for column in table.columns]
    assert table.rows[0].cells[headings.index("l2 at 0.5")].note == "one run"
    assert "2 runs" in table.rows[0].cells[headings.index("l∞ at 8/255")].note


def test_one_training_that_is_named_twice_has_no_spread() -> None:
    """A copy of an evaluation, or one of the last weights, is no second seed: the spread would be too small."""
    assert 'id="seeds"' not in render(Comparison.of([run(0), run(0)]))
    comparison = Comparison.of([run(0), run(0), run(1, 0.2)])
    table = next(each for each in tables(comparison) if each.key == "seeds")
    assert [row.cells[-1].text for row in table.rows] == ["0, 1"]
    assert [recipe.seeds for recipe in comparison.recipes()] == [(0, 1), (0,)]


def test_each_run_has_its_mark_on_its_recipes_line() -> None:
    clean, linf, l2 = spreads(Comparison.of([run(0), run(1, 0.2), run(2, 0.4)]))
    assert (clean.title, linf.title, l2.title) == (
        "clean accuracy",
        "robust accuracy, l∞ at 8/255",
        "robust accuracy, l2 at 0.5",
    )
    marks = [each for each in l2.series if each.kind == "marks"]
    assert [each.x[0] for each in marks] == pytest.approx([0.4, 0.6, 0.8])
    assert {each.y[0] for each in marks} == {0}
    assert l2.alt == "penalty: 60.0 %, from 40.0 % to 80.0 %."
    data = svg.readings(l2)
    assert data is not None
    assert (data["series"][0]["y"], data["series"][0]["x"]) == (["penalty"], ["40.0 %"])


def test_there_is_a_section_only_where_a_recipe_was_trained_twice() -> None:
    assert 'id="seeds"' in render(Comparison.of([run(0), run(1)]))
    assert 'id="seeds"' not in render(Comparison.of([run(0), run(0, name="other")]))


def test_defended_models_are_shown_closer_where_the_undefended_is_far_away() -> None:
    near = [run(0, 0.3, "a"), run(0, 0.4, "b")]
    far = renamed(run(0, -0.05, "plain"), "plain", objective="undefended")
    assert [chart.title for chart in frontiers(Comparison.of(near), "l2", 0.5)] == ["l2 0.5"]
    whole, closer = frontiers(Comparison.of([*near, far]), "l2", 0.5)
    assert closer.title == "l2 0.5, the defended models closer"
    assert closer.models == {0, 1}
    assert whole.models == {0, 1, 2}
    assert closer.y.high - closer.y.low < whole.y.high - whole.y.low


def test_what_an_evaluation_says_of_itself_is_beside_its_accuracy() -> None:
    note = "In l2, 3 of 40 adversarial images were right under fresh draws."
    page = render(Comparison.of([replace(generated(1)[0], notes=(note,))]))
    assert note in page[page.index('id="models"') : page.index('id="tables"')]
