"""Two recipes over their seeds: the interval against the textbook's tests, and how often it holds the truth."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from scipy.stats import ttest_ind, ttest_rel
from torch import Tensor

from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from gradreg.report.tables.contrast import contrast, contrasts, difference
from handmade import handmade, renamed


def trained(name: str, seed: int, distance: Sequence[float], objective: str = "gradient") -> Evaluation:
    """Ten images at these l2 distances, of a recipe told from others by its objective."""
    recipe = {"epochs": 3, "seed": seed, "objective": objective}
    evaluation = renamed(handmade(), f"{name}-seed{seed}", recipe=recipe)
    record = evaluation.threats["l2"]
    there = replace(record, attacked=replace(record.attacked, distance=torch.tensor(distance)))
    return replace(evaluation, threats={"l2": there})


NEAR = [0.0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.6, 0.6, 0.6, 0.6]
FAR = [0.0, 0.0, 0.2, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6]


def test_with_one_seed_each_it_is_the_paired_test_over_images() -> None:
    a, b = torch.rand(2, 1, 40, generator=torch.Generator().manual_seed(0)).round()
    interval = ttest_rel(a[0].double(), b[0].double()).confidence_interval(0.95)
    found = difference(a, b)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert not found.with_seeds


def test_where_all_images_are_alike_it_is_welchs_test_over_seeds() -> None:
    a, b = torch.tensor([0.30, 0.34, 0.33]).double(), torch.tensor([0.31, 0.28, 0.27, 0.30]).double()
    interval = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    found = difference(a[:, None].expand(3, 50), b[:, None].expand(4, 50))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found.with_seeds


def test_the_other_way_round_it_is_the_negative() -> None:
    a, b = torch.rand(3, 30, generator=torch.Generator().manual_seed(1)).round(), torch.eye(30)[:2]
    one, other = difference(a, b), difference(b, a)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))


def test_what_is_the_same_with_every_seed_is_no_distance_apart_for_certain() -> None:
    found = difference(torch.ones(2, 5), torch.ones(3, 5))
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_one_image_says_nothing() -> None:
    found = difference(torch.ones(2, 1), torch.zeros(2, 1))
    assert (found.low, found.high) == (-float("inf"), float("inf"))


@pytest.mark.parametrize("of_seeds", [0.0, 0.1])
@pytest.mark.parametrize("of_images", [0.0, 1.0])
def test_the_interval_holds_the_truth_as_often_as_it_says(of_seeds: float, of_images: float) -> None:
    """Recipes that are as good, with images that are harder for one of them and lucky and unlucky seeds."""
    stream = torch.Generator().manual_seed(2)

    def drawn() -> Tensor:
        seeds = of_seeds * torch.randn(3, 1, generator=stream)
        return seeds + of_images * torch.randn(1, 100, generator=stream) + torch.randn(3, 100, generator=stream)

    found = [difference(drawn(), drawn()) for _ in range(400)]
    assert sum(each.low <= 0 <= each.high for each in found) >= 0.93 * len(found)
    images_alone = [difference(a[:1], b[:1]) for a, b in ((drawn(), drawn()) for _ in range(400))]
    if of_seeds and not of_images:
        assert sum(each.low <= 0 <= each.high for each in images_alone) < 0.9 * 400, "the seeds' share is needed"


def test_shares_are_means_over_seeds_and_images_are_matched_by_their_place_in_the_test_set() -> None:
    back = torch.arange(10).flip(0)
    turned = trained("ours", 2, [FAR[9 - i] for i in range(10)])
    turned = replace(turned, index=turned.index[back])
    theirs = [trained("theirs", seed, NEAR, "adversarial") for seed in (1, 2)]
    made = contrast(Comparison.of([*theirs, trained("ours", 1, FAR), turned]), "l2", [0.0, 0.5])
    assert [row.name for row in made.rows] == ["ours against theirs, clean (l2)", "ours against theirs, l2 0.5"]
    clean, robust = made.rows
    assert [cell.value for cell in clean.cells[:3]] == pytest.approx([0.8, 0.9, -0.1])
    assert [cell.value for cell in robust.cells[:3]] == pytest.approx([0.7, 0.4, 0.3])
    # Three images of ten stand with the one recipe and not with the other, and no seed differs from another.
    interval = ttest_rel([0, 0, 0, 1, 1, 1, 0, 0, 0, 0.0], [0.0] * 10).confidence_interval(0.95)
    assert robust.cells[2].note == f"−{-100 * interval.low:.1f} to +{100 * interval.high:.1f}, images and seeds"
    assert [cell.text for cell in robust.cells[3:]] == ["1, 2 and 1, 2", "10"]


def test_only_images_that_all_networks_were_attacked_on_count() -> None:
    shifted = trained("theirs", 1, NEAR, "adversarial")
    shifted = replace(shifted, index=shifted.index + 7 * 4)
    (row,) = contrast(Comparison.of([shifted, trained("ours", 1, FAR)]), "l2", [0.5]).rows
    assert [cell.value for cell in row.cells[:2]] == pytest.approx([1.0, 0.0]), "images 4 to 9, which are their 0 to 5"
    assert row.cells[4].text == "6"
    assert "images alone" in row.cells[2].note
    apart_from_all = replace(shifted, index=shifted.index + 1)
    assert not contrast(Comparison.of([trained("ours", 1, FAR), apart_from_all]), "l2", [0.5]).rows


def test_a_report_sets_the_best_of_the_repeated_recipes_against_the_others() -> None:
    ours = [trained("ours", seed, FAR) for seed in (0, 1)]
    theirs = [trained("theirs", seed, NEAR, "adversarial") for seed in (0, 1)]
    once = trained("once", 0, FAR, "trades")
    names = [row.name for row in contrasts(Comparison.of([*theirs, once, *ours])).rows]
    assert names == ["ours against theirs, clean (l2)", "ours against theirs, l2 0.5"]
    assert not contrasts(Comparison.of([ours[0], theirs[0]])).rows, "nothing was trained twice"
