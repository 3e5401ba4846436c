"""The paper's order, against models whose distances are made up so that some pairs stand the other way round."""

from dataclasses import replace
from typing import Any

import pytest

from docs.make.fill import table
from docs.make.ordering import objective_name, ordering
from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from gradreg.report.tables.formats import rows_only
from gradreg.report.tables.layout import Row
from handmade import handmade

AT = {"name": "adversarial", "threat": "linf", "steps": 7}
PENALTY = {"name": "gradient", "lam": 1.0}
# At 8/255 the paper has AT 8/255, AT 2/255, l1 1, l1 0.1, undefended, best first.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "plain": {"name": "undefended"},
    "near": {**AT, "eps": 2 / 255},
    "far": {**AT, "eps": 8 / 255},
    "strong": {**PENALTY, "threat": "linf", "scale": "paper"},
    "l2": {**PENALTY, "threat": "l2", "lam": 0.1},
}


def model(name: str, factor: float, data: str = "cifar10") -> Evaluation:
    """Its distances are `factor` times 0, 0.01 … in l∞, 0, 0.1 … in l2."""
    made = handmade(name)
    threats = {
        threat: replace(each, attacked=replace(each.attacked, distance=factor * each.attacked.distance))
        for threat, each in made.threats.items()
    }
    subject = replace(made.subject, recipe={"objective": OBJECTIVES[name], "seed": 0})
    return replace(made, subject=subject, threats=threats, data=replace(made.data, name=data))


def rows(*evaluations: Evaluation) -> dict[str, Row]:
    return {row.name: row for row in ordering(Comparison.of(evaluations)).rows}


def texts(row: Row) -> list[str]:
    return [cell.text for cell in row.cells]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("plain", "undefended"), ("near", "AT 2/255"), ("far", "AT 8/255"), ("strong", "l1 1"), ("l2", "l2 0.1")],
)
def test_an_objective_has_the_papers_name(name: str, expected: str) -> None:
    assert objective_name(model(name, 1.0)) == expected


def test_the_authors_rounded_radius_is_8_255() -> None:
    made = handmade()
    subject = replace(made.subject, recipe={"objective": {**AT, "eps": 0.0314}})
    assert objective_name(replace(made, subject=subject)) == "AT 8/255"


@pytest.mark.parametrize(
    "objective",
    [
        None,
        {"name": "trades"},
        {**AT, "eps": 8 / 255, "steps": 10},
        {**AT, "eps": 0.03},
        {**PENALTY, "threat": "l1"},
        {**PENALTY, "threat": "linf", "scale": "dual"},
        {**PENALTY, "threat": "l2", "squared": False},
        {"name": "gradient", "threat": "l2", "eps": 0.5},
    ],
)
def test_others_have_none(objective: dict[str, Any] | None) -> None:
    made = handmade()
    recipe = None if objective is None else {"objective": objective}
    assert objective_name(replace(made, subject=replace(made.subject, recipe=recipe))) == ""


def test_pairs_are_counted_and_those_that_stand_otherwise_are_named() -> None:
    """At 8/255, errors of 10, 10, 40 and 100 %: AT 2/255 and 8/255 are equal, the penalty is better than both."""
    found = rows(model("near", 1.5), model("plain", 0.1), model("far", 1.5), model("strong", 9.0))
    row = found["Table 1, empirical error at 8/255"]
    assert texts(row) == [
        "AT 8/255, AT 2/255, l1 1, undefended",
        "3 of 6",
        "AT 8/255 = AT 2/255; l1 1, AT 8/255; l1 1, AT 2/255",
    ]
    assert row.cells[1].value == 0.5
    assert not any("hours" in name for name in found)


def test_where_large_is_good_the_order_is_turned() -> None:
    """Mean l2 distances: the paper has 0.74 with AT 8/255, 0.66 with AT 2/255, 0.63 with l2 0.1 and 0.12 without."""
    found = rows(model("l2", 2.0), model("plain", 0.5), model("near", 3.0), model("far", 4.0))
    row = found["Table 2, empirical"]
    assert texts(row) == ["AT 8/255, AT 2/255, l2 0.1, undefended", "6 of 6", "–"]


def test_figures_that_are_equal_in_the_paper_make_no_pair() -> None:
    """ω-bound errors at 8/255: 100 % both for AT 2/255 and undefended."""
    row = rows(model("near", 1.0), model("plain", 1.0), model("far", 1.0))["Table 1, ω-bound error at 8/255"]
    assert texts(row)[0] == "AT 8/255, undefended = AT 2/255"
    assert texts(row)[1] == "0 of 2"


def test_a_mark_asks_for_it_and_models_that_the_paper_does_not_have_make_no_row() -> None:
    pair = [model("near", 1.0), model("far", 2.0)]
    made = table(["ordering"], Comparison.of(pair))
    assert made.key == "ordering"
    assert rows_only(made).startswith("| column |"), "its rows are columns of the paper's tables"
    assert made.rows
    assert not ordering(Comparison.of(pair[:1])).rows
    assert not ordering(Comparison.of([model("near", 1.0, "mnist5k"), model("far", 2.0, "mnist5k")])).rows


def test_of_several_seeds_the_first_counts() -> None:
    first, second = model("near", 3.0), replace(model("near", 0.1), subject=model("near", 1.0).subject)
    assert rows(first, second, model("far", 1.0)) == rows(first, model("far", 1.0))
