"""The images of an evaluation: which test images are looked at, and which training images the bounds are fitted on."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.bounds.data import gather
from gradreg.data import DataSet, ImageFolder, Images
from gradreg.errors import ConfigError, DataError
from gradreg.fingerprints import images_key
from gradreg.randomness import generator

Pairs = tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]
Data = DataSet | Images | ImageFolder | Pairs

# Up to this many test images are all run through once; more cost time and say little more.
WHOLE = 10_000


@dataclass(frozen=True)
class Calibration:
    """Images to estimate L and ω on; read when they are needed. `key` names them."""

    key: str
    read: Callable[[], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Material:
    """The selected test images, where they came from, and what goes with them."""

    name: str
    total: int
    classes: tuple[str, ...] | None
    """What labels mean; None for bare tensors."""
    radii: Mapping[str, tuple[float, ...]]
    """The data set's own, by threat."""
    index: Tensor
    x: Tensor
    y: Tensor
    calibration: Calibration | None
    whole: Callable[[slice], tuple[Tensor, Tensor]] | None
    """Any part of the test set, if it lies in memory and is small enough to be run through."""

    def key(self) -> str:
        """A fingerprint of the images, their labels and their places."""
        return images_key(self.x, self.y, self.index)


def select(total: int, images: int, seed: int) -> Tensor:
    """The first so many places of one permutation of the test set: to ask for more images adds to those of before."""
    if images < 1:
        raise ConfigError(f"images is {images}, but at least one test image must be looked at.")
    return torch.randperm(total, generator=generator("evaluation", seed))[:images]


def gathered(data: Data, images: int, seed: int, calibration: Data | None, calibration_images: int) -> Material:
    """The material of a data set, of a part of one, of a pair of tensors or of a loader of such pairs."""
    given = calibration if calibration is not None else data.train if isinstance(data, DataSet) else None
    fitted_on = None if given is None else _calibration(given, calibration_images, seed)
    part = data.test if isinstance(data, DataSet) else data
    if isinstance(part, Images | ImageFolder):
        index = select(len(part), images, seed)
        name, radii = (data.name, data.radii) if isinstance(data, DataSet) else (part.source, {})
        whole = _whole(part) if isinstance(part, Images) and len(part) <= WHOLE else None
        x, y = part.floats(index), part.labels[index]
        return Material(name, len(part), part.classes, radii, index, x, y, fitted_on, whole)
    x, y = _pairs(part)
    index = select(len(x), images, seed)
    in_memory = (lambda rows: (x[rows], y[rows])) if len(x) <= WHOLE else None
    rows = index.to(x.device)
    return Material("images", len(x), None, {}, index, x[rows], y[rows], fitted_on, in_memory)


def _whole(part: Images) -> Callable[[slice], tuple[Tensor, Tensor]]:
    return lambda rows: (part.floats(rows), part.labels[rows])


def _calibration(data: Data, images: int, seed: int) -> Calibration:
    """A random part of the images, since a folder's come sorted by class."""
    if images < 1:
        raise ConfigError(f"calibration_images is {images}, but at least one is needed.")
    part = data.train if isinstance(data, DataSet) else data
    if isinstance(part, Images | ImageFolder):
        index = torch.randperm(len(part), generator=generator("calibration", seed))[:images]
        if isinstance(part, ImageFolder):
            # Told by their place, so that files are not decoded before they are needed.
            return Calibration(f"{part.source}/{len(part)}/{images}", lambda: (part.floats(index), part.labels[index]))
        x, y = part.floats(index), part.labels[index]
    else:
        x, y = (values[:images] for values in _pairs(part))
    return Calibration(images_key(x, y), lambda: (x, y))


def _pairs(data: Pairs) -> tuple[Tensor, Tensor]:
    try:
        x, y = gather(data, None)
    except TypeError as error:
        raise DataError(
            f"data is a {type(data).__name__}, but it is a data set of gradreg.data, (images, labels), or a loader of "
            "such pairs."
        ) from error
    if len(x) != len(y) or len(x) == 0:
        raise DataError(
            f"There are {len(x)} images and {len(y)} labels: give one label for each of at least one image."
        )
    return x, y
