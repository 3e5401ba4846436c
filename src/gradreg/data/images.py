"""Images in memory, and data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gradreg.checks.fields import check_fields
from gradreg.checks.objects import check_text
from gradreg.checks.scalars import check_names, shown
from gradreg.checks.tensors import check_dense, check_index
from gradreg.data.folder import ImageFolder
from gradreg.data.order import holdout
from gradreg.errors import DataError


def floats(pixels: Tensor, *, channels_last: bool = False) -> Tensor:
    """Bytes as float32 in [0, 1]."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return pixels.to(torch.float32, memory_format=layout).div_(255)


@dataclass(frozen=True, eq=False)
class Images:
    """Pixels, their labels and what the labels mean.

    Pixels stay bytes until a batch is made: a quarter of the memory, and augmentation is exact on every device.
    """

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    source: str = "The image set"

    def __post_init__(self) -> None:
        check_text("source", self.source)
        object.__setattr__(self, "classes", check_names("classes", self.classes))
        for name in ("pixels", "labels"):
            if isinstance(getattr(self, name), Tensor):
                check_dense(f"{self.source}: {name}", getattr(self, name))
        if not isinstance(self.pixels, Tensor) or self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4:
            raise DataError(
                f"{self.source}: pixels must be a uint8 tensor (image, channel, height, width); "
                f"got {shown(self.pixels)}."
            )
        if not isinstance(self.labels, Tensor) or self.labels.dtype != torch.int64 or self.labels.ndim != 1:
            raise DataError(f"{self.source}: labels must be an int64 tensor (image,); got {shown(self.labels)}.")
        if len(self.pixels) != len(self.labels):
            raise DataError(
                f"{self.source} must have one label per image; got {len(self.labels)} for {len(self.pixels)} images."
            )
        if self.pixels.device != self.labels.device:
            raise DataError(f"{self.source}: pixels and labels must be on one device; got {self.labels.device}.")
        if self.pixels.numel() == 0:
            raise DataError(f"{self.source} holds no images.")
        wrong = ((self.labels < 0) | (self.labels >= len(self.classes))).nonzero()
        if len(wrong):
            image = int(wrong[0])
            raise DataError(
                f"{self.source}: labels must lie between 0 and {len(self.classes) - 1} for {len(self.classes)} "
                f"classes; got {int(self.labels[image])} for image {image}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, index: Tensor | Sequence[int] | slice) -> Images:
        """The images at some positions, in the order given."""
        rows = check_index("index", index, len(self)).to(self.pixels.device)
        return replace(self, pixels=self.pixels[rows], labels=self.labels[rows])

    def split(self, n: int, seed: int) -> tuple[Images, Images]:
        """The images that remain when n are held out at random, and the held-out ones."""
        kept, held = holdout(len(self), n, seed, self.source)
        return self.subset(kept), self.subset(held)

    def floats(self, index: Tensor | Sequence[int] | slice = slice(None)) -> Tensor:
        """The pixels at some positions (default: all), as float32 in [0, 1]."""
        return floats(self.subset(index).pixels)


@dataclass(frozen=True)
class DataSet:
    """A training part and a test part with the same classes."""

    name: str
    train: Images | ImageFolder
    test: Images | ImageFolder
    radii: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Radii to quote robust error at, by threat; default: the threat's own."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.train.classes != self.test.classes:
            raise DataError(f"The training and test parts of {self.name} have different classes.")

    @property
    def classes(self) -> tuple[str, ...]:
        """The class name of each label."""
        return self.train.classes
