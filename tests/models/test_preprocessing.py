"""A preprocessor_config.json as layers: each against the arithmetic on bytes that it stands for."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.errors import GradregError
from gradreg.models.preprocessing import Preprocessing, Resize

SQUARE = {"size": {"height": 6, "width": 6}}
MEAN, STD = [0.1, 0.2, 0.3], [0.5, 0.25, 0.125]
USUAL = {"image_mean": MEAN, "image_std": STD}


def prepared(config: dict[str, Any], pixels: Tensor) -> Tensor:
    layers = Preprocessing.of(SQUARE | config, "here").layers()
    found: Tensor = nn.Sequential(*layers.values())(pixels)
    return found


def by_bytes(pixels: Tensor, factor: float, offset: float = 0.0, normalise: bool = True) -> Tensor:
    """As libraries compute it: rescale bytes, subtract, divide."""
    values = pixels * 255 * factor - offset
    return (values - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1) if normalise else values


@pytest.mark.parametrize(
    ("config", "factor", "offset", "normalise"),
    [
        (USUAL, 1 / 255, 0.0, True),
        ({**USUAL, "do_normalize": False}, 1 / 255, 0.0, False),
        ({"do_rescale": True}, 1 / 255, 0.0, False),
        ({**USUAL, "do_rescale": False}, 1.0, 0.0, True),
        ({**USUAL, "rescale_factor": 1 / 127.5, "rescale_offset": True}, 1 / 127.5, 1, True),
    ],
    ids=["usual", "not normalised", "no statistics", "bytes", "offset"],
)
def test_statistics_are_those_of_bytes(config: dict[str, Any], factor: float, offset: float, normalise: bool) -> None:
    pixels = torch.randint(256, (2, 3, 6, 6)) / 255
    assert_close(prepared(config, pixels), by_bytes(pixels, factor, offset, normalise), rtol=1e-5, atol=1e-4)


def test_channels_in_the_other_order() -> None:
    pixels = torch.rand(2, 3, 6, 6)
    assert_close(prepared({"do_flip_channel_order": True}, pixels), pixels[:, [2, 1, 0]])


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"size": {"height": 6, "width": 8}}, (6, 8)),
        ({"size": {"shortest_edge": 7}}, (7, 7)),
        ({"size": 5}, (5, 5)),
        ({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 9, "width": 9}}, (9, 9)),
        ({"do_resize": False}, (4, 4)),
    ],
)
def test_the_size_that_the_model_gets(config: dict[str, Any], size: tuple[int, int]) -> None:
    assert prepared(config, torch.rand(1, 3, 4, 4)).shape[-2:] == size


def test_images_of_the_right_size_are_not_touched() -> None:
    pixels = torch.rand(1, 3, 6, 6, requires_grad=True)
    assert Resize(6, 6)(pixels) is pixels
    enlarged = Resize(12, 12)(torch.full((1, 3, 6, 6), 0.25))
    assert_close(enlarged, torch.full((1, 3, 12, 12), 0.25))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"do_pad": True}, "asks for do_pad, which cannot be made a layer"),
        ({"image_mean": MEAN}, "must have image_mean and image_std"),
        ({"image_mean": "half", "image_std": STD}, "image_mean must be"),
        ({"image_mean": MEAN, "image_std": [0.0, 1, 1]}, "image_std must be"),
        ({"size": {"longest_edge": 3}}, "must say the size of images as height and width"),
        ({"size": {"height": 10**9, "width": 1}}, "size must be"),
        ({"resample": 4}, "resample must be one of"),
    ],
)
def test_what_is_no_layer_is_refused(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GradregError, match=sentence):
        prepared(config, torch.rand(1, 3, 4, 4))
