"""Kinks replaced in any model: every layer, once, in place; what is left is shown."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gradreg
from gradreg.errors import ModelError
from gradreg.models import kinks, swap_activations, swap_pooling
from gradreg.models.activations import C2ReLU


class Foreign(nn.Module):
    """A block as people write it: a layer used twice under two names, a gate, and a function."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.again = nn.Sequential(self.act)
        self.gate = nn.Hardsigmoid()
        self.six = nn.ReLU6()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.head = nn.AdaptiveMaxPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.again(self.act(self.conv(x))))
        found: Tensor = self.head(F.relu(self.six(x) * self.gate(x))).flatten(1)
        return found


def test_every_layer_is_replaced_once() -> None:
    model = Foreign().eval()
    weights = [*model.parameters()]
    assert swap_activations(model, "c2relu") is model
    assert isinstance(model.act, C2ReLU)
    assert model.again[0] is model.act
    assert isinstance(model.six, C2ReLU)
    assert isinstance(model.gate, nn.Sigmoid), "a gate stays between 0 and 1"
    assert all(ours is theirs for ours, theirs in zip(model.parameters(), weights, strict=True))
    assert not any(module.training for module in model.modules())
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 4)


def test_what_is_left_is_shown() -> None:
    model, x = Foreign(), torch.rand(2, 3, 8, 8)
    before = kinks(model, x)
    assert before["relu"] == 3
    assert {"hardsigmoid", "hardtanh"} <= before.keys()
    gradreg.swap_pooling(gradreg.swap_activations(model))
    assert kinks(model, x) == {"relu": 1}, "the function that the forward calls"


def test_averages_are_taken_over_the_same_windows() -> None:
    x = torch.rand(2, 3, 9, 9)
    for layer in (nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d((3, 2), ceil_mode=True)):
        average = swap_pooling(nn.Sequential(layer))
        assert average(x).shape == layer(x).shape
        assert torch.allclose(average(torch.ones(1, 1, 9, 9)), torch.tensor(1.0)), "padding does not count"
    assert torch.equal(swap_pooling(nn.AdaptiveMaxPool2d(1))(x), nn.AdaptiveAvgPool2d(1)(x))
    with pytest.raises(ModelError, match="dilation"):
        swap_pooling(nn.MaxPool2d(3, dilation=2))
    with pytest.raises(ModelError, match="where its maxima are"):
        swap_pooling(nn.Sequential(nn.MaxPool2d(2, return_indices=True)))


def test_nothing_to_replace_is_an_error() -> None:
    with pytest.raises(ModelError, match="has no activation layer with a kink for 'gelu' to replace"):
        swap_activations(nn.Linear(2, 2))
    with pytest.raises(ModelError, match="has no max pooling layer to replace"):
        swap_pooling(nn.Linear(2, 2))
    with pytest.raises(ModelError, match="There is no activation 'gleu'"):
        swap_activations(nn.ReLU(), "gleu")
    with pytest.raises(ModelError, match=r"must be an nn.Module"):
        swap_activations(torch.relu)  # type: ignore[arg-type]
