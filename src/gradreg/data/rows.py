"""Anybody's data set of single images (Hugging Face's, torchvision's, your own) as images in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradreg.data import pairs
from gradreg.data.images import Images, floats
from gradreg.data.tensors import Tensors
from gradreg.errors import DataError

# Positions read at once, so that what is held as floats stays small.
_PART = 1000


def images_of(data: pairs.Rows, *, as_bytes: bool = False) -> Images | Tensors:
    """All of its images with their labels: as bytes where that loses nothing, which `as_bytes` insists on.

    Otherwise floats in [0, 1], and targets of any form with them.
    """
    total = pairs.count(data)
    pairs.check_settled(data)
    pixels, labels, exact = [], [], True
    for start in range(0, total, _PART):
        x, y = pairs.rows(data, range(start, min(start + _PART, total)))
        low, high = (float(end) for end in x.aminmax())
        if not 0 <= low <= high <= 1:
            raise DataError(
                f"The images of a data set that is trained on must have pixels in [0, 1]; got {low:g} to {high:g}: "
                "drop the normalisation, which belongs into the model, or pass loaders."
            )
        bytes_ = (255 * x).round()
        fits = x.ndim == 4 and bool(((bytes_ / 255 - x).abs() < 1e-6).all())
        if as_bytes and not fits:
            raise DataError(
                "The images of a data set that is augmented must be bytes, or bytes over 255, of shape (channels, "
                f"height, width); got {x.dtype} of shape {tuple(x.shape[1:])}: augment in a loader instead."
            )
        if as_bytes and not _are_labels(y):
            raise DataError(
                f"The labels of a data set that is augmented must be whole numbers, one per image; got {y.dtype} of "
                f"shape {tuple(y.shape[1:])} each: augment in a loader instead."
            )
        exact = exact and fits and _are_labels(y)
        pixels.append(bytes_.to(torch.uint8) if exact else x)
        labels.append(y)
    try:
        found = torch.cat(labels)
        if not exact:
            return Tensors(torch.cat([floats(x) if x.dtype == torch.uint8 else x for x in pixels]), found)
        classes = names_of(data) or tuple(map(str, range(int(found.max()) + 1)))
        return Images(torch.cat(pixels), found.long(), classes, source=type(data).__name__)
    except RuntimeError as error:
        raise DataError("All images of the data must have one shape: resize them in the data set.") from error


def names_of(data: Any) -> tuple[str, ...]:
    """The classes by name, as Hugging Face and torchvision keep them; none if it keeps none."""
    features = getattr(data, "features", None)
    if isinstance(features, dict):
        label = next((features[key] for key in pairs.LABELS if key in features), None)
        found = getattr(label, "names", None)
    else:
        found = getattr(data, "classes", None)
    return tuple(map(str, found)) if isinstance(found, list | tuple) else ()


def _are_labels(y: Tensor) -> bool:
    return y.ndim == 1 and not y.is_floating_point()
