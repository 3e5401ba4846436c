"""An oracle of ε answers every question from one search, as VERONA asks it: image by image, by bisection."""

import pytest
import torch
from attack_models import exact_distance, images, linear_model
from torch import Tensor, nn

from gradreg.attacks import EpsilonOracle
from gradreg.errors import ConfigError
from gradreg.norms import threat


class Counting(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.rows = model, 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        logits: Tensor = self.model(x)
        return logits


def bisected(oracle: EpsilonOracle, model: nn.Module, data: Tensor, label: int) -> float:
    """The smallest of 1,024 radii at which the perturbed image is misclassified, asked as a stranger asks."""
    low, high = 0, 1024
    while high - low > 1:
        middle = (low + high) // 2
        perturbed = oracle.execute(model, data, torch.tensor([label]), middle / 1024)
        wrong = int(model(perturbed).argmax(1)) != label
        low, high = (low, middle) if wrong else (middle, high)
    return high / 1024


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_critical_epsilons_of_a_linear_model(norm: str) -> None:
    linear, x = linear_model(20, classes=4), images(4, 20, "middle")
    model, y = Counting(linear).eval(), linear(x).argmax(1)
    oracle = EpsilonOracle(norm, attacks="quick")  # type: ignore[arg-type]
    exact = exact_distance(linear, x, y, norm)
    for row in range(4):
        found = bisected(oracle, model, x[row], int(y[row]))
        assert 0 <= found - float(exact[row]) <= 0.02 * float(exact[row]) + 1 / 1024
        critical = oracle.critical(model, x[row : row + 1], y[row : row + 1])
        assert float(critical) <= found < float(critical) + 1 / 1024
    # Ten questions per image, and one search each.
    assert model.rows < 4 * 120
    assert oracle.name == f"gradreg (quick, {norm})"


def test_perturbed_images_are_within_epsilon_and_others_untouched() -> None:
    model, x = linear_model(20, classes=4), images(6, 20, "middle")
    y = model(x).argmax(1)
    oracle = EpsilonOracle("l2", attacks="quick")
    critical = oracle.critical(model, x, y)
    eps = float(critical.median())
    perturbed = oracle.execute(model, x, y, eps)
    assert torch.equal((perturbed != x).any(1), critical <= eps)
    assert (threat("l2").norm(perturbed - x) <= eps).all()
    assert torch.equal(model(perturbed).argmax(1) != y, critical <= eps)


def test_another_model_or_label_is_another_question() -> None:
    x = images(2, 20, "middle")
    one, other = linear_model(20, classes=4), linear_model(20, classes=4, seed=3)
    oracle = EpsilonOracle("l2", attacks="quick")
    labels = one(x).argmax(1)
    assert not torch.equal(oracle.critical(one, x, labels), oracle.critical(other, x, labels))
    assert oracle.critical(one, x, (labels + 1) % 4).tolist() == [0, 0]


def test_bad_questions_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match="leave out eps="):
        EpsilonOracle(eps=0.1)
    with pytest.raises(ConfigError, match="epsilon must be at least 0"):
        EpsilonOracle().execute(linear_model(20, 4), images(1, 20, "middle"), torch.tensor([0]), -1)
