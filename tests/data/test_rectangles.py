"""Rectangular evaluation: which shapes, every image once, and the square result for squares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from torch import Tensor

from gradreg.data import FolderBatches, ImageFolder, RectangularBatches
from gradreg.data.decode import Decoder, rectangle
from gradreg.errors import DataError


def folder(root: Path, sizes: list[tuple[int, int]], size: int = 64) -> ImageFolder:
    """PNG files of one grey level each, by which an image is known again."""
    paths = []
    for number, (width, height) in enumerate(sizes):
        paths.append(str(root / f"{number}.png"))
        PIL.Image.fromarray(np.full((height, width, 3), 3 * number, np.uint8)).save(paths[-1])
    return ImageFolder(tuple(paths), torch.arange(len(sizes)) % 2, ("a", "b"), "toy", size)


# Width and height of the file, and of its view when the short side is 64.
SHAPES = {
    (100, 100): (64, 64),
    (149, 100): (64, 64),  # 95 pixels in proportion, one short of 64 + 32
    (150, 100): (96, 64),  # 96 exactly
    (100, 150): (64, 96),
    (199, 100): (96, 64),
    (200, 100): (128, 64),
    (900, 100): (128, 64),  # no more than twice as long
    (20, 30): (64, 96),
}


@pytest.mark.parametrize(("file", "view"), SHAPES.items())
def test_a_view_keeps_the_proportions_in_steps_of_32(file: tuple[int, int], view: tuple[int, int]) -> None:
    assert rectangle(*file, 64) == view


@pytest.mark.parametrize("size", [32, 64, 224, 288])
def test_sides_are_multiples_of_32_that_fit_into_the_resized_image(size: int) -> None:
    for width in range(1, 400, 7):
        for height in range(1, 400, 11):
            across, down = rectangle(width, height, size)
            assert across % 32 == 0
            assert down % 32 == 0
            assert min(across, down) == size
            short = 114 * size // 100
            assert across <= round(width * short / min(width, height))
            assert down <= round(height * short / min(width, height))


def gathered(batches: list[tuple[Tensor, Tensor]]) -> dict[int, tuple[tuple[int, int], int]]:
    """Shape of the view and label, by number of the image."""
    found = {}
    for x, y in batches:
        for image, label in zip(x, y, strict=True):
            number = round(image.mean().item() * 255 / 3)
            assert number not in found
            found[number] = (image.shape[2], image.shape[1]), int(label)
    return found


@pytest.mark.parametrize("batch_size", [1, 3, 50])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_image_comes_once_with_its_shape_and_label(tmp_path: Path, batch_size: int, world: int) -> None:
    sizes = list(SHAPES) * 3
    images = folder(tmp_path, sizes)
    expected = {i: (SHAPES[size], i % 2) for i, size in enumerate(sizes)}
    parts = [RectangularBatches(images, batch_size, workers=0, rank=rank, world=world) for rank in range(world)]
    batches = [list(part) for part in parts]
    assert len({len(found) for found in batches}) == 1
    assert [len(found) for found in batches] == [len(part) for part in parts]
    assert gathered([batch for found in batches for batch in found]) == expected
    for part, found in zip(parts, batches, strict=True):
        for positions, (_, y) in zip(part.shares(), found, strict=True):
            assert torch.equal(images.labels[positions], y)


def test_a_view_is_the_middle_of_the_resized_image(tmp_path: Path) -> None:
    x, y = np.meshgrid(np.linspace(0, 255, 120), np.linspace(0, 255, 80))
    original = PIL.Image.fromarray(np.stack([x, y, (x + y) / 2], 2).astype(np.uint8))
    original.save(tmp_path / "x.png")
    view = np.asarray(Decoder(64, rectangular=True).view(str(tmp_path / "x.png"), 0))
    resized = original.resize((round(120 * 72 / 80), 72), PIL.Image.Resampling.BILINEAR)
    assert np.array_equal(view, np.asarray(resized.crop((6, 4, 6 + 96, 4 + 64))))


def test_squares_give_the_square_result_to_the_bit(tmp_path: Path) -> None:
    images = folder(tmp_path, [(70 + i, 70 + i) for i in range(7)])
    plain = list(FolderBatches(images, 3, workers=0))
    for (x, y), (u, v) in zip(plain, RectangularBatches(images, 3, workers=0), strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)


def test_headers_are_read_once_and_a_bad_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = folder(tmp_path, [(100, 100), (200, 100)])
    batches = RectangularBatches(images, 2, workers=0)
    list(batches)
    groups = batches.groups
    list(batches)
    assert batches.groups is groups
    (tmp_path / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"1\.png cannot be decoded as an image .*: replace or remove it\."):
        len(RectangularBatches(images, 2, workers=0))
