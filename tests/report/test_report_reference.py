"""The table to choose a recipe by."""

from dataclasses import replace

import pytest
import torch

from gradreg.config.tables import plain as table_of
from gradreg.evaluation.record import Confirmed, Evaluation
from gradreg.report.compare import cost_ratio
from gradreg.report.reference import reference
from gradreg.report.seeds import by_recipe
from gradreg.report.settings import flat, nearest_recipe, told
from gradreg.runs.recipes import config
from gradreg.smoothing.intervals import clopper_pearson
from handmade import handmade, renamed


def seeded(seed: int, broken: int) -> Evaluation:
    """A run of that seed of which AutoAttack left all but `broken` of the ten images."""
    evaluation = renamed(handmade(hours=1.0 + seed), f"run-seed{seed}", recipe={"epochs": 3, "seed": seed})
    robust = torch.arange(10) >= broken
    found = Confirmed("autoattack", "standard", 0.45, robust, 5.0, 3.0, 1.0)
    return replace(
        evaluation, threats={**evaluation.threats, "l2": replace(evaluation.threats["l2"], confirmed=(found,))}
    )


def plain() -> Evaluation:
    return renamed(handmade(objective="undefended", hours=0.5), "plain", recipe={"epochs": 3, "objective": "none"})


def test_runs_that_differ_in_the_seed_are_one_row() -> None:
    groups = by_recipe([seeded(2, 6), plain(), seeded(0, 4)])
    assert [(group.name, group.seeds) for group in groups] == [("run", (0, 2)), ("plain", (0,))]


def test_figures_are_those_of_the_columns() -> None:
    # l2 distances are 0, 0.1 … 0.9: five images stand at 0.45, whatever the seed.
    table = reference([seeded(0, 4), seeded(2, 6), plain()], "l2", 0.45)
    ours, other = table.rows
    recipe, clean, robust, auto, both, hours, ratio, *_ = (cell.value for cell in ours.cells)
    assert recipe is None
    assert ours.cells[0].text == "–", "no recipe of ours is for such a network"
    assert (clean, robust, auto, both) == pytest.approx((0.9, 0.5, 0.5, 0.45))
    assert (hours, ratio) == pytest.approx((2.0, 4.0))
    assert (ours.cells[5].note, ours.cells[6].note) == ("1.00–3.00", "2.00–6.00")
    assert ours.cells[3].note == "18.7–81.3 %, n = 10; 40.0–60.0 % over 2 seeds"
    assert other.cells[3].text == "–", "AutoAttack was not run on it"
    elsewhere = replace(plain(), threats={})
    (alone,) = reference([seeded(0, 4), elsewhere], "l2", 0.45).rows
    assert alone.cells[6].value == pytest.approx(2.0), "costs are compared with a network that was not attacked"
    assert other.cells[2].note == "18.7–81.3 %, n = 10", "the Clopper-Pearson interval of 5 out of 10"


def test_a_figure_that_some_seeds_lack_says_whose_it_is() -> None:
    unconfirmed = seeded(2, 6)
    unconfirmed = replace(unconfirmed, threats={"l2": replace(unconfirmed.threats["l2"], confirmed=())})
    (row,) = reference([unconfirmed, seeded(0, 4)], "l2", 0.45).rows
    assert (row.cells[3].text, row.cells[3].note) == ("60.0 %", "26.2–87.8 %, n = 10; of seed 0")
    assert row.cells[2].note == "18.7–81.3 %, n = 10; 50.0–50.0 % over 2 seeds"


def test_seeds_that_were_attacked_on_fewer_images_widen_the_interval() -> None:
    whole, part = replace(seeded(0, 4), clean=(20, 200)), replace(seeded(1, 4), clean=(5, 100))
    (row,) = reference([whole, part], "l2", 0.45).rows
    # 92.5 of 100 are right on the mean; half an image is rounded to the even one.
    low, high = clopper_pearson(92, 100)
    assert row.cells[1].text == "92.5 %"
    assert row.cells[1].note == f"{100 * low:.1f}–{100 * high:.1f} %, n = 100 to 200; 90.0–95.0 % over 2 seeds"


@pytest.mark.parametrize(
    ("recipe", "turned", "said"),
    [
        ("cifar10-compact-linf", ["seed=3", "device=cpu"], ""),
        ("cifar10-compact-linf", ["objective.eps=6/255", "clip_norm=1.0"], "eps 6/255, clip_norm 1"),
        ("cifar10-compact-at", ["objective.eps=6/255"], "eps 6/255"),
        ("mnist5k-l2", ["epochs=1"], "epochs 1"),
    ],
)
def test_a_training_is_told_by_the_recipe_it_turned(recipe: str, turned: list[str], said: str) -> None:
    settings = table_of(config(recipe, turned))
    # A run writes down what the images brought, too.
    settings["model"] |= {"classes": 10, "channels": 3}
    found = nearest_recipe(flat(settings))
    assert found is not None
    assert (found[0], told(found[1])) == (recipe, said)
    row, *_ = reference([renamed(handmade(), "run", recipe=settings)], "l2", 0.45).rows
    assert (row.cells[0].text, row.cells[0].note) == (recipe, said)


def test_no_recipe_is_near_to_images_of_ones_own() -> None:
    settings = table_of(config("mnist5k-l2"))
    assert nearest_recipe(flat({**settings, "data": "folder:leaves"})) is None


def test_costs_are_compared_within_a_seed_where_they_can_be() -> None:
    slower = renamed(plain(), "plain-seed2", recipe={"epochs": 3, "objective": "none", "seed": 2}, hours=1.5)
    two, three = seeded(2, 6), seeded(3, 6)
    assert cost_ratio(two, [plain(), slower, two]) == pytest.approx(3.0 / 1.5)
    assert cost_ratio(three, [plain(), slower]) == pytest.approx(4.0 / 0.5), "the first, if none has the seed"
    assert cost_ratio(two, [two]) is None
