"""When an attack stops: images that no longer gain, budgets, and points that are asked about together."""

import pytest
import torch
from attack_models import exact_distance, images, linear_model, small_network

from gradreg.attacks import boundary, carlini_wagner, fmn
from gradreg.attacks.search import Search
from gradreg.classifier import Classifier
from gradreg.norms import threat
from gradreg.queries import Queries


def test_images_that_no_longer_gain_are_done() -> None:
    """Far below the steps they were given, and as near as a linear model allows; without `stall` all are taken."""
    model, x = linear_model(30, classes=2), images(6, 30, "middle")
    y = model(x).argmax(1)
    exact = exact_distance(model, x, y, "l2")
    settled = carlini_wagner(model, x, y, rounds=9, steps=400)
    assert settled.propagations.max() < 9 * 2 * 400 / 3
    assert (settled.distance / exact).max() <= 1.002
    walked = boundary(model, x, y, steps=3000)
    assert walked.forwards.max() < 3000 / 2
    assert (walked.distance / exact).max() <= 1.1
    assert carlini_wagner(model, x, y, rounds=2, steps=50, stall=0).backwards.min() == 1 + 2 * 50
    assert boundary(model, x, y, steps=600, stall=0).forwards.min() > 600 - 50


@pytest.mark.parametrize("budget", [30, 75])
def test_probes_keep_to_the_budget(budget: int) -> None:
    """Several points of an image are asked in one call."""
    model, x = small_network(), images(5, 20, "middle")
    y = model(x).argmax(1)
    start = fmn(model, x, y, steps=20).adversarial
    result = boundary(model, x, y, start=start, budget=budget)
    assert budget - 20 <= result.propagations.min()
    assert result.propagations.max() <= budget


def test_sides_are_those_of_the_points() -> None:
    """A linear model's own labels, with a finished image left out and every row counted."""
    model, x = linear_model(10, classes=3), images(4, 10, "middle")
    y = model(x).argmax(1)
    queries = Queries.none(4, x.device)
    classifier = Classifier.of(model)
    found = Search(classifier, x, y, threat("l2"), model(x).detach(), queries=queries)
    found.begin(0)
    found.retire(torch.tensor([False, True, False, False]))
    points = torch.rand(5, 4, 10, generator=torch.Generator().manual_seed(0))
    rows = found.searched(5)
    assert rows.tolist() == [0, 2, 3]
    with classifier.counted(4) as counted:
        hit = found.sides(points[:, rows], rows)
    other = (model(points.flatten(0, 1)).argmax(1).view(5, 4) != y)[:, rows]
    assert torch.equal(hit, other)
    assert counted.forwards.tolist() == [5, 0, 5, 5]
    assert other.any()
    assert not found.found.any()
