"""Images that fail when they are asked about alone: pushed outwards until they do not, or given up."""

from typing import Literal

import pytest
import torch
from attack_models import images, small_network
from torch import Tensor, nn

from gradreg import Classifier
from gradreg.attacks import attack
from gradreg.errors import ModelError

BEHIND = 0.05


class Alone(nn.Module):
    """A hyperplane at 0 along one pixel, which a batch of one sees `BEHIND` farther away; counts its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.training = 0, False

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        height = x.flatten(1)[:, 0] - BEHIND * (len(x) == 1)
        return torch.stack([-height, height], 1)


# How far the images are from the plane: 1.0001, 1.001, 1.01 and 1.1 times as far is beyond BEHIND for all but the last.
FAR = torch.tensor([600.0, 80.0, 12.0, 0.9, 0.2])
X = torch.cat([-FAR[:, None], torch.zeros(5, 3)], 1).view(5, 1, 2, 2)
Y = torch.zeros(5, dtype=torch.int64)


def classifier() -> tuple[Classifier, Alone]:
    model = Alone()
    return Classifier(model, box=(-1e3, 1e3)), model


@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_what_fails_alone_is_pushed_out_or_given_up(threat: str) -> None:
    asked, model = classifier()
    result = attack(asked, X, Y, threat=threat, attacks=["deepfool"])
    assert result.success.tolist() == [True, True, True, True, False]
    shares = result.distance / FAR
    torch.testing.assert_close(shares[:4], torch.tensor([1.0001, 1.001, 1.01, 1.1]), rtol=1e-3, atol=0)
    assert (shares[:4] * FAR[:4] > FAR[:4] + BEHIND).all()
    for image in result.adversarial[:4]:
        assert int(model(image[None]).argmax()) == 1
    assert result.distance[4] == torch.inf
    assert torch.equal(result.adversarial[4], X[4])
    assert result.winner[4] == ""


def test_every_question_is_counted() -> None:
    asked, model = classifier()
    result = attack(asked, X, Y, threat="l2", attacks=["deepfool"])
    assert model.rows == int(result.forwards.sum())


@pytest.mark.parametrize("budget", [5, 8, 10, 12, 40, 60])
def test_a_push_keeps_to_the_budget(budget: int) -> None:
    result = attack(classifier()[0], X, Y, threat="l2", attacks=["deepfool"], budget=budget)
    assert result.propagations.max() <= budget
    for image in result.adversarial[result.success]:
        assert int(Alone()(image[None]).argmax()) == 1
    assert bool(result.success[:4].all()) is (budget == 60)


class NotANumberAlone(nn.Module):
    """A hyperplane, but a batch of one that is beyond it has no answer."""

    def forward(self, x: Tensor) -> Tensor:
        height = x.flatten(1)[:, 0]
        height = height.masked_fill((height > 0) & (len(x) == 1), torch.nan)
        return torch.stack([-height, height], 1)


@pytest.mark.parametrize("precision", ["model", "bf16"])
def test_no_answer_alone_is_an_error(precision: Literal["model", "bf16"]) -> None:
    model = Classifier(NotANumberAlone().eval(), box=(-1e3, 1e3))
    with pytest.raises(ModelError, match="not finite for a perturbed image"):
        attack(model, X, Y, threat="l2", attacks=["deepfool"], precision=precision)


@pytest.mark.parametrize("budget", [7, 10, 20, 30, 60])
@pytest.mark.parametrize("bits", [3, 6])
def test_rounding_to_a_grid_keeps_to_the_budget(budget: int, bits: int) -> None:
    x = images(6, 20, "middle").mul(2**bits - 1).round().div(2**bits - 1)
    y = small_network()(x).argmax(1)
    result = attack(small_network(), x, y, threat="l2", attacks=["fmn"], budget=budget, quantize=bits)
    assert result.propagations.max() <= budget
    if budget == 60:
        assert result.success.any()
