"""Models that mix the images of a batch in ways that halves of it, or a few images in other company, do not show."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attack_models import images, small_network
from torch import Tensor, nn

import gradreg
from gradreg.errors import ModelError


class Grouped(nn.Module):
    """Ghost batches: the mean of each group of neighbours is taken off."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.model, self.size, self.training = small_network().eval(), size, False

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part - 0.9 * part.mean(0) for part in self.model(x).split(self.size)])


class Full(nn.Module):
    """Experts with room for so many images of a batch: the others get the same answer."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.model, self.room, self.training = small_network().eval(), room, False

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return torch.cat([logits[: self.room], logits.new_tensor([3.0, 0, 0, 0]).expand(len(x), 4)[self.room :]])


class LastSeesFirst(nn.Module):
    """Only the last image of a batch sees another one."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.training = small_network().eval(), False

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return torch.cat([logits[:-1], logits[-1:] - logits[:1]]) if len(x) > 2 else logits


MODELS = [*map(Grouped, (2, 3, 4, 8)), *map(Full, (5, 9, 15)), LastSeesFirst()]


@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
@pytest.mark.parametrize("count", [16, 24])
@pytest.mark.parametrize("call", ["attack", "evaluate"])
def test_images_that_see_each_other_are_refused(model: nn.Module, count: int, call: str) -> None:
    x = images(count, 20, "middle")
    y = torch.arange(count) % 4
    run: dict[str, Callable[[], Any]] = {
        "attack": lambda: gradreg.attack(model, x, y, attacks="quick"),
        "evaluate": lambda: gradreg.evaluate(model, (x, y), attacks="quick"),
    }
    with pytest.raises(ModelError, match="depend on the other images of the batch"):
        run[call]()


@pytest.mark.parametrize("room", [5, 64, 300])
def test_a_batch_of_noise_that_is_larger_than_any_of_images_is_tried_too(room: int) -> None:
    """Six images fit, a thousand noisy ones do not: certificates would name a class that no image has alone."""
    with pytest.raises(ModelError, match="depend on the other images of the batch"):
        gradreg.certify(Full(room), images(6, 20, "middle"), sigma=0.1, n=1000)


def test_models_whose_room_is_never_filled_are_asked() -> None:
    x = images(6, 20, "middle")
    found, expected = (gradreg.certify(model, x, sigma=0.1, n=500) for model in (Full(10**6), small_network().eval()))
    assert torch.equal(found.radius, expected.radius)
