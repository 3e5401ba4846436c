"""From an image file to bytes of a fixed size. Pillow is imported when the first file is opened."""

from __future__ import annotations

import importlib.util
import math
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from gradreg.errors import DataError
from gradreg.reading import check_regular

if TYPE_CHECKING:
    from PIL.Image import Image

_Box = tuple[float, float, float, float]

# Whatever a file's name says. Of Pillow's others, some start another program (EPS) or are hardly ever used.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "PPM", "TIFF")
_MOST_PIXELS = 89_478_485  # beyond it Pillow warns of a bomb
_FEW_PIXELS, _PIXELS_PER_BYTE = 1 << 20, 10_000  # a blank page of bits has 8,000 in PNG
_LONGEST = 8  # times the short side; beyond it, an image is cut before it is resized
_GRID = 32  # the stride of ImageNet networks: other side lengths leave the last cell partly empty


def need_pillow() -> None:
    """Raise an error early: a missing package should not surface from a worker process."""
    if importlib.util.find_spec("PIL") is None:
        raise DataError("Image files are read with Pillow, which is not installed: run pip install pillow.")


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Image]:
    """An image file, not decoded yet; whatever goes wrong until it is closed becomes a DataError that names it."""
    import PIL.Image

    most = min(_MOST_PIXELS, _FEW_PIXELS + _PIXELS_PER_BYTE * check_regular(path))
    try:
        with PIL.Image.open(path, formats=_FORMATS) as image:
            if image.width * image.height > most:
                raise ValueError(f"it has {image.width}×{image.height} pixels, and {most:,} is the limit for its size")
            yield image
    except DataError:
        raise
    except Exception as error:  # a damaged file can make Pillow raise almost anything
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path} cannot be decoded as an image ({words}): replace or remove it.") from error


@dataclass(frozen=True)
class Decoder(Dataset[Tensor | str]):
    """Turns (path, position) pairs into a batch of bytes, by a random view or, without `min_scale`, a central one.

    With `rectangular` a central view has the shape that `rectangle` gives, which all images of a batch must share. A
    file that cannot be decoded gives the error message in place of the batch: an exception raised in a worker process
    would arrive with the worker's traceback in its message.
    """

    size: int
    min_scale: float | None = None
    flip: bool = False
    seed: int = 0
    epoch: int = 0
    rectangular: bool = False

    def __getitems__(self, keys: list[tuple[str, int]]) -> Tensor | str:
        batch = torch.empty((len(keys), 3, self.size, self.size), dtype=torch.uint8, device="cpu")
        for row, (path, position) in enumerate(keys):
            try:
                pixels = torch.from_numpy(np.array(self.view(path, position))).permute(2, 0, 1)
            except DataError as error:
                return str(error)
            if row == 0 and self.rectangular:
                batch = batch.new_empty((len(keys), *pixels.shape))
            batch[row] = pixels
        return batch

    def view(self, path: str, position: int) -> Image:
        """The image as the model gets it; randomness depends on (seed, epoch, position) and nothing else."""
        import PIL.Image

        dice = random.Random(f"{self.seed} {self.epoch} {position}")
        with opened(path) as image:
            if self.min_scale is None:
                shape = rectangle(*image.size, self.size) if self.rectangular else (self.size, self.size)
                view = _central_view(image, *shape)
            else:
                view = _random_view(image, self.size, self.min_scale, dice)
        if self.flip and dice.random() < 0.5:
            view = view.transpose(PIL.Image.Transpose.FLIP_LEFT_RIGHT)
        return view


def rectangle(width: int, height: int, size: int) -> tuple[int, int]:
    """Width and height of the view of an image of that shape: the short side is `size`, the long one in proportion.

    It exceeds `size` by a multiple of 32, rounded down so that the view fits, and is cut at twice `size`.
    """
    short, long = min(width, height), max(width, height)
    longer = size + min(size * (long - short) // short, size) // _GRID * _GRID
    return (longer, size) if width > height else (size, longer)


def _central_view(image: Image, width: int, height: int) -> Image:
    """The short side resized to 1.14 times the view's, then the central part."""
    short = 114 * min(width, height) // 100  # in integers: 1.14 * 50 is a hair below 57
    image = _cut_to_proportion(image)
    scale = short / min(image.size)
    resized = as_rgb(image).resize((round(image.width * scale), round(image.height * scale)), _bilinear())
    left, top = (resized.width - width) // 2, (resized.height - height) // 2
    return resized.crop((left, top, left + width, top + height))


def _cut_to_proportion(image: Image) -> Image:
    """The middle of a very long image: resized whole, a line of 5000 pixels would be 1.3 million pixels long."""
    most = _LONGEST * min(image.size)
    if max(image.size) <= most:
        return image
    left, top = (max(0, side - most) // 2 for side in image.size)
    return image.crop((left, top, left + min(image.width, most), top + min(image.height, most)))


def _random_view(image: Image, size: int, min_scale: float, dice: random.Random) -> Image:
    """A random box, cut and resized in one call; JPEG is decoded no larger than that needs."""
    width, height = image.size
    box = _random_box(width, height, min_scale, dice)
    wanted = size * width / (box[2] - box[0]), size * height / (box[3] - box[1])
    image.draft(None, (math.ceil(wanted[0]), math.ceil(wanted[1])))
    x, y = image.width / width, image.height / height
    scaled = box[0] * x, box[1] * y, min(box[2] * x, image.width), min(box[3] * y, image.height)
    return as_rgb(image).resize((size, size), _bilinear(), box=scaled)


def _random_box(width: int, height: int, min_scale: float, dice: random.Random) -> _Box:
    """A box of a uniform fraction of the area in [min_scale, 1] and a log-uniform aspect in [3/4, 4/3].

    Ten boxes that stick out of a very long image are followed by the largest central one of allowed aspect.
    """
    for _ in range(10):
        area = dice.uniform(min_scale, 1) * width * height
        aspect = math.exp(dice.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = math.sqrt(area * aspect), math.sqrt(area / aspect)
        if w <= width and h <= height:
            left, top = dice.uniform(0, width - w), dice.uniform(0, height - h)
            return left, top, left + w, top + h
    w, h = min(width, height * 4 / 3), min(height, width * 4 / 3)
    return (width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2


def as_rgb(image: Image) -> Image:
    """Three bytes per pixel, whatever the file holds; transparency is dropped."""
    import PIL.Image

    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16"):  # Pillow would clip 16-bit greys at 255 instead of scaling them
        image = PIL.Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError(f"its 32-bit pixels, mode {image.mode}, have no known range")
    elif "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _bilinear() -> int:
    import PIL.Image

    return PIL.Image.Resampling.BILINEAR
