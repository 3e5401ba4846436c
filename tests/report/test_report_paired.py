"""Two models image by image."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest

from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from gradreg.report.tables.paired import paired, pairs, sign_test
from handmade import handmade, renamed


def shifted(by: float) -> Evaluation:
    """Distances 0, 0.1 … 0.9 like `handmade`, but for images 3, 4 and 5, which are nearer or farther by that much."""
    evaluation = renamed(handmade(), "other")
    record = evaluation.threats["l2"]
    distance = record.attacked.distance.clone()
    distance[3:6] += by
    moved = replace(record, attacked=replace(record.attacked, distance=distance))
    return replace(evaluation, threats={**evaluation.threats, "l2": moved})


@pytest.mark.parametrize(("one", "other"), [(0, 0), (1, 0), (5, 5), (15, 18), (8, 24), (0, 2000), (700, 800)])
def test_thesign_test_is_the_binomial_one(one: int, other: int) -> None:
    exact = binomtest(min(one, other), one + other).pvalue if one + other else 1.0
    assert sign_test(one, other) == pytest.approx(exact, rel=1e-9)


def test_images_are_counted_once_each() -> None:
    (row,) = pairs(Comparison.of([handmade(), shifted(0.4)]), "l2", [0.55]).rows
    assert row.name == "by hand against other, l2 0.55"
    assert [cell.value for cell in row.cells[:4]] == [0, 3, 4, 3]
    assert row.cells[4].value == pytest.approx(0.25)


def test_images_are_matched_by_their_place_in_the_test_set_not_in_the_file() -> None:
    other = shifted(0.4)
    backwards = torch.arange(len(other)).flip(0)
    record = other.threats["l2"]
    turned = replace(record, attacked=replace(record.attacked, distance=record.attacked.distance[backwards]))
    other = replace(other, index=other.index[backwards], threats={"l2": turned})
    (row,) = pairs(Comparison.of([handmade(), other]), "l2", [0.55]).rows
    assert [cell.value for cell in row.cells[:4]] == [0, 3, 4, 3]


def test_a_report_sets_the_best_model_against_the_others() -> None:
    table = paired(Comparison.of([handmade(), shifted(0.4), renamed(handmade(), "third")]))
    assert [row.name for row in table.rows if ", l2 " in row.name] == [
        "other against by hand, l2 0.5",
        "other against third, l2 0.5",
    ]


def test_models_without_an_image_or_a_threat_in_common_are_left_out() -> None:
    apart = replace(shifted(0.4), index=handmade().index + 1)
    assert not pairs(Comparison.of([handmade(), apart]), "l2", [0.5]).rows
    assert not pairs(Comparison.of([handmade(), replace(shifted(0.4), threats={})]), "l2", [0.5]).rows
    assert not paired(Comparison.of([handmade()])).rows, "there is nobody to compare with"
