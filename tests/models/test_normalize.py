"""Normalisation: the arithmetic, what a checkpoint carries, and statistics that cannot be meant."""

import re

import pytest
import torch
from torch.testing import assert_close

from gradreg.errors import ModelError
from gradreg.models import Normalize, build
from gradreg.models.normalize import Statistics

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.5]


def test_each_channel_is_normalised_by_its_own_statistics() -> None:
    pixels = torch.rand(4, 3, 5, 6)
    out = Normalize(MEAN, STD)(pixels)
    for channel in range(3):
        assert_close(out[:, channel], (pixels[:, channel] - MEAN[channel]) / STD[channel])


def test_one_number_serves_all_channels() -> None:
    pixels = torch.rand(2, 3, 4, 4)
    assert_close(Normalize(0.5, 0.25)(pixels), (pixels - 0.5) * 4)


def test_statistics_are_buffers_that_travel_with_the_weights() -> None:
    layer, other = Normalize(MEAN, STD), Normalize([0.0] * 3, [1.0] * 3)
    assert not list(layer.parameters())
    other.load_state_dict(layer.state_dict())
    assert_close(other.std.flatten(), torch.tensor(STD))


def test_a_model_with_statistics_is_the_plain_one_on_normalised_pixels() -> None:
    plain = build("compact", classes=5).eval()
    normalised = build("compact", classes=5, mean=MEAN, std=STD).eval()
    normalised.load_state_dict(plain.state_dict(), strict=False)
    pixels = torch.rand(2, 3, 16, 16)
    assert_close(normalised(pixels), plain(Normalize(MEAN, STD)(pixels)))


def test_statistics_are_checked_even_where_tensors_hold_no_numbers() -> None:
    with torch.device("meta"):
        assert Normalize(MEAN, STD).mean.is_meta
        with pytest.raises(ModelError, match="must be positive"):
            Normalize(MEAN, 0.0)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.5, 0.5], [0.2] * 3, "mean and std must have the same number of values; got 2 and 3."),
        (MEAN, [0.2, 0.0, 0.2], "std must be positive for every channel; got [0.2, 0.0, 0.2]."),
        ("grey", STD, "mean must be a number; got 'grey'."),
        (MEAN, float("nan"), "std must be a finite number; got nan."),
        ([], STD, "mean must be one or more numbers; got []."),
    ],
)
def test_senseless_statistics_are_refused(mean: Statistics, std: Statistics, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        Normalize(mean, std)


def test_mean_and_std_come_together_and_fit_the_channels() -> None:
    with pytest.raises(ModelError, match=r"Pass both mean and std, or neither .*; std is missing"):
        build("small", classes=10, mean=0.1)
    with pytest.raises(ModelError, match=r"Pass both mean and std, or neither .*; mean is missing"):
        build("small", classes=10, std=0.3)
    with pytest.raises(ModelError, match="mean must have 1 value or one per channel, channels=1; got 3"):
        build("small", classes=10, mean=MEAN, std=STD)
    with pytest.raises(ModelError, match="std must have 1 value or one per channel, channels=1; got 3"):
        build("small", classes=10, mean=0.5, std=STD)


def test_printing_shows_the_numbers() -> None:
    assert repr(Normalize(0.485, [0.229])) == "Normalize(mean=[0.485], std=[0.229])"
