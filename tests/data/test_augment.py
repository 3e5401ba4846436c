from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from gradreg.data.augment import Draw, crop, cutout, flip, per_image, pipeline
from gradreg.errors import ConfigError


def draw_for(n: int, seed: int = 0) -> Draw:
    return per_image(torch.Generator().manual_seed(seed), n, slice(0, n))


def scripted(*values: list[int]) -> Draw:
    """A draw that gives known numbers, and checks that they are in range."""
    queue = list(values)

    def draw(k: int) -> Tensor:
        assert all(0 <= value < k for value in queue[0])
        return torch.tensor(queue.pop(0))

    return draw


def noise(n: int, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randint(0, 256, (n, channels, height, width), generator=generator).to(torch.uint8)


def test_crop_is_a_slice_of_the_padded_image() -> None:
    batch = noise(3, height=10, width=7)
    cropped = crop(batch, scripted([0, 8, 3], [8, 4, 0]), padding=4, fill=128 / 255)
    for image, result, top, left in zip(batch, cropped, [0, 8, 3], [8, 4, 0], strict=True):
        padded = torch.full((3, 18, 15), 128, dtype=torch.uint8)
        padded[:, 4:14, 4:11] = image
        assert torch.equal(result, padded[:, top : top + 10, left : left + 7])


def test_crop_without_padding_changes_nothing() -> None:
    assert torch.equal(crop(noise(4), draw_for(4), padding=0), noise(4))


def test_flip_is_a_flip_of_about_half_of_the_images() -> None:
    batch = noise(1000, 1, 4, 4)
    flipped = flip(batch, draw_for(1000))
    mirrored = (flipped == batch.flip(3)).flatten(1).all(1)
    kept = (flipped == batch).flatten(1).all(1)
    assert (mirrored ^ kept).all()
    assert 440 < int(mirrored.sum()) < 560
    assert torch.equal(flip(batch[:2], scripted([1, 0])), torch.stack([batch[0].flip(2), batch[1]]))


@pytest.mark.parametrize("size", [16, 5, 1, 2, 40])
def test_cutout_paints_the_mean_colour_of_the_box(size: int) -> None:
    """A loop over images, channels and box as the reference; the box is cut off at the borders."""
    n, height, width = 40, 32, 24
    batch = noise(n, 3, height, width)
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(height + 1 - size % 2, (n,), generator=generator).tolist()
    columns = torch.randint(width + 1 - size % 2, (n,), generator=generator).tolist()
    rows[:2], columns[:2] = [0, height - size % 2], [0, width - size % 2]  # both extreme corners
    expected = batch.clone()
    for i in range(n):
        top, left = rows[i] - size // 2, columns[i] - size // 2
        box = slice(max(top, 0), min(top + size, height)), slice(max(left, 0), min(left + size, width))
        for channel in range(3):
            patch = batch[i, channel, box[0], box[1]].double()
            expected[i, channel, box[0], box[1]] = int(patch.mean() + 0.5)
    assert torch.equal(cutout(batch, scripted(rows, columns), size=size), expected)


def test_cutout_centres_are_uniform_over_all_corners_between_pixels() -> None:
    """The clipped interval tells the centre: 33 of them in each axis of a 32x32 image."""
    n = 6600
    board = (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).mul(255).to(torch.uint8)
    batch = board.expand(n, 1, 32, 32)
    changed = (cutout(batch, draw_for(n), size=16) != batch).squeeze(1)  # a mean is neither 0 nor 255
    for axis in (1, 2):
        covered = changed.any(3 - axis).long()
        first, length = covered.argmax(1), covered.sum(1)
        centre = torch.where(first > 0, first + 8, length - 8)
        counts = torch.bincount(centre, minlength=33)
        assert len(counts) == 33
        assert chisquare(counts.numpy()).pvalue > 0.001


def test_a_share_of_a_batch_gets_the_draws_of_its_images() -> None:
    whole = draw_for(10)
    part = per_image(torch.Generator().manual_seed(0), 10, slice(3, 7))
    for k in (9, 2, 33):
        assert torch.equal(whole(k)[3:7], part(k))


def test_a_recipe_names_steps_with_options() -> None:
    batch = noise(6, 1, 8, 8)
    steps = pipeline(["flip", {"name": "crop", "padding": 2, "fill": 0}, lambda batch, draw: batch // 2])
    draw, result = draw_for(6), batch
    for step in steps:
        result = step(result, draw)
    draw = draw_for(6)
    assert torch.equal(result, crop(flip(batch, draw), draw, padding=2, fill=0) // 2)
    assert pipeline(None) == ()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cut", r"no augmentation 'cut' \(did you mean 'cutout'\?\): choose one of crop, flip, cutout"),
        ({"padding": 3}, "no augmentation None"),
        ({"name": "flip", "p": 0.5}, "'flip' has no option 'p': it has none"),
        ({"name": "crop", "size": 3}, "'crop' has no option 'size': it has padding, fill"),
        ({"name": "crop", "fill": 128}, r"fill of augmentation 'crop' must be from 0 to 1; got 128"),
        ({"name": "crop", "padding": 1.5}, "padding of augmentation 'crop' must be a whole number; got 1.5"),
        ({"name": "cutout", "size": 0}, "size of augmentation 'cutout' must be from 1 to 1024; got 0"),
    ],
)
def test_a_wrong_recipe_is_refused(spec: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pipeline([spec])
