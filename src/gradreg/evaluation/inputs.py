"""The images of an evaluation: which test images it is about, and which training images the bounds are fitted on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradreg.bounds.data import gather
from gradreg.checks.scalars import shown
from gradreg.checks.tensors import check_batch, check_labels
from gradreg.data import DataSet, ImageFolder, Images, pairs
from gradreg.data.rows import names_of
from gradreg.errors import DataError
from gradreg.evaluation.options import EvaluationOptions
from gradreg.evaluation.record import TestSet
from gradreg.fingerprints import image_keys, images_key
from gradreg.norms import THREATS, Threat, checked, usual_radii_of
from gradreg.randomness import generator

Pairs = tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]] | Iterable[Mapping[str, Any]] | pairs.Rows
Data = DataSet | Images | ImageFolder | Pairs

# A test set of up to this many images, ImageNet's among them, is classified whole: a forward each, where attacks take
# a thousand of each image.
_WHOLE = 50_000


@dataclass(frozen=True)
class Calibration:
    """Images to estimate L and ω on; read when they are needed. `key` identifies them."""

    key: str
    read: Callable[[], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Inputs:
    """The selected test images, where they came from, and what goes with them."""

    test_set: TestSet
    """Its classes are empty for bare tensors."""
    index: Tensor
    x: Tensor
    y: Tensor
    calibration: Calibration | None
    whole: Callable[[slice], tuple[Tensor, Tensor]] | None
    """Any part of the test set, if it is small enough to be classified whole."""

    def key(self) -> str:
        """A fingerprint of the images, their labels and their positions."""
        return images_key(self.x, self.y, self.index)

    def quoted_in(self, norms: Sequence[Threat]) -> "Inputs":
        """With radii to quote robust error at in norms that have no short name."""
        euclidean = self.test_set.usual_radii("l2")
        own = [checked(norm, self.x) for norm in norms if norm.name not in THREATS]
        radii = {norm.name: usual_radii_of(norm, self.x, euclidean) for norm in own}
        return replace(self, test_set=replace(self.test_set, radii={**self.test_set.radii, **radii})) if own else self

    def to(self, device: torch.device) -> "Inputs":
        """With the images on the model's device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device).long())


def select(total: int, images: int, seed: int) -> Tensor:
    """The first positions of one permutation of the test set, so a larger selection contains every smaller one."""
    return torch.randperm(total, generator=generator("evaluation", seed), device="cpu")[:images]


def inputs_of(data: Data, calibration: Data | None, options: EvaluationOptions) -> Inputs:
    """The inputs from a data set, a part of one, (images, labels), a loader, or anybody's data set by position."""
    given = calibration if calibration is not None else data.train if isinstance(data, DataSet) else None
    fitted_on = None if given is None else _calibration(given, options)
    part = data.test if isinstance(data, DataSet) else data
    if isinstance(part, Images | ImageFolder):
        index = select(len(part), options.images, options.seed)
        name, radii = (data.name, data.radii) if isinstance(data, DataSet) else (part.source, {})
        x, y = part.floats(index), part.labels[index]
        test_set = TestSet(name, len(part), part.classes, tuple(x.shape[1:]), radii)
        whole = _rows_of(part) if len(part) <= _WHOLE else None
        return Inputs(test_set, index, x, y, fitted_on, whole)
    if pairs.is_rows(part):
        return _of_rows(part, fitted_on, options)
    x, y = _pairs(part)
    index = select(len(x), options.images, options.seed)
    rows = index.to(x.device)
    some = (lambda part: (x[part], y[part])) if len(x) <= _WHOLE else None
    return Inputs(_unnamed("images", len(x), x[rows]), index, x[rows], y[rows], fitted_on, some)


def _of_rows(data: pairs.Rows, fitted_on: Calibration | None, options: EvaluationOptions) -> Inputs:
    """The inputs from a data set whose images are read by position: no more of them than are needed."""
    total = pairs.count(data)
    index = select(total, options.images, options.seed)
    x, y = _checked(*pairs.rows(data, index.tolist()))
    pairs.check_settled(data)
    pairs.check_bytes(x)
    classes = names_of(data)
    whole = (lambda rows: _checked(*pairs.rows(data, range(*rows.indices(total))))) if total <= _WHOLE else None
    name = getattr(getattr(data, "info", None), "dataset_name", None) or type(data).__name__
    return Inputs(_unnamed(str(name), total, x, classes), index, x, y, fitted_on, whole)


def _unnamed(name: str, images: int, x: Tensor, classes: tuple[str, ...] = ()) -> TestSet:
    """A test set that its name does not tell from others: the images themselves must."""
    return TestSet(name, images, classes, tuple(x.shape[1:]), pixels=tuple(image_keys(x).tolist()))


def _rows_of(part: Images | ImageFolder) -> Callable[[slice], tuple[Tensor, Tensor]]:
    return lambda rows: (part.floats(rows), part.labels[rows])


def _calibration(data: Data, options: EvaluationOptions) -> Calibration:
    """A random part of the images, since those of a folder are sorted by class."""
    images = options.calibration_images
    part = data.train if isinstance(data, DataSet) else data
    if isinstance(part, Images | ImageFolder):
        index = torch.randperm(len(part), generator=generator("calibration", options.seed), device="cpu")[:images]
        if isinstance(part, ImageFolder):
            # Identified by position, so that no file is decoded before it is needed.
            return Calibration(f"{part.source}/{len(part)}/{images}", lambda: (part.floats(index), part.labels[index]))
        x, y = part.floats(index), part.labels[index]
    elif pairs.is_rows(part):
        total = pairs.count(part)
        index = torch.randperm(total, generator=generator("calibration", options.seed), device="cpu")[:images]
        x, y = _checked(*pairs.rows(part, index.tolist()))
    else:
        x, y = (values[:images] for values in _pairs(part))
    return Calibration(images_key(x, y), lambda: (x, y))


def _pairs(data: Pairs) -> tuple[Tensor, Tensor]:
    if not isinstance(data, Iterable):
        raise DataError(
            f"data must be a data set of gradreg.data, (images, labels), or a loader of such pairs; got {shown(data)}."
        )
    return _checked(*gather(data, None))


def _checked(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return check_batch(x, "The images of data"), check_labels(y, len(x), "The labels of data")
