"""Does it do what it is for? With fixed seeds, on real digits."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradreg.data import load as load_data
from gradreg.losses import cross_entropy
from gradreg.norms import per_image, threat
from gradreg.penalty.passes import Calls
from gradreg.runs import load, recipes
from gradreg.training import train

IMAGES, ROUNDS, STEPS, FARTHEST = 200, 9, 20, 6.0


def distances(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The smallest l2 radius at which PGD fools the model, by bisection, for each image; 0 for those that are wrong."""
    geometry, calls = threat("l2"), Calls(model, cross_entropy, "train", "off")
    safe, fooled = torch.zeros(len(x)), torch.full((len(x),), FARTHEST)
    for _ in range(ROUNDS):
        radius = (safe + fooled) / 2
        moved = x
        for _ in range(STEPS):
            gradient = calls.record(moved, y).input_gradient(differentiable=False)
            step = per_image(2.5 * radius / STEPS, x) * geometry.ascent(gradient)
            moved = (x + geometry.project(moved + step - x, radius)).clamp(0, 1)
        with torch.no_grad():
            wrong = model(moved).argmax(1) != y
        safe, fooled = torch.where(wrong, safe, radius), torch.where(wrong, radius, fooled)
    with torch.no_grad():
        return fooled.where(model(x).argmax(1) == y, 0.0)


@pytest.mark.slow
def test_the_penalty_moves_adversarial_digits_away_at_no_cost_in_accuracy(tmp_path: Path) -> None:
    test = load_data("mnist5k").test
    x, y = test.floats(), test.labels
    accuracy, distance = {}, {}
    for name in ("undefended", "l2"):
        train(recipes.config(f"mnist5k-{name}"), tmp_path / name)
        model = load(tmp_path / name, "last")
        with torch.no_grad():
            accuracy[name] = (model(x).argmax(1) == y).float().mean().item()
        distance[name] = distances(model, x[:IMAGES], y[:IMAGES]).mean().item()
    assert distance["l2"] >= 1.5 * distance["undefended"], distance
    assert accuracy["l2"] > accuracy["undefended"] - 0.01, accuracy
