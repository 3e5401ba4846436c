"""Anybody's data set of single images (Hugging Face's, torchvision's, your own) as images in memory."""

from __future__ import annotations

from typing import Any

import torch

from gradreg.data import pairs
from gradreg.data.images import Images
from gradreg.errors import DataError

# Positions read at once, so that what is held as floats stays small.
_PART = 1000


def images_of(data: pairs.Rows) -> Images:
    """All of its images as bytes, with their labels; floats must be bytes over 255, which loses nothing."""
    if len(data) == 0:
        raise DataError("The data holds no images.")
    pixels, labels = [], []
    for start in range(0, len(data), _PART):
        x, y = pairs.rows(data, range(start, min(start + _PART, len(data))))
        bytes_ = (255 * x).round()
        if x.ndim != 4 or not bool(((bytes_ / 255 - x).abs() < 1e-6).all()) or not bool(_is_byte(bytes_)):
            raise DataError(
                "The images of a data set that is trained on must be bytes, or bytes over 255, of shape (channels, "
                f"height, width); got {x.dtype} of shape {tuple(x.shape[1:])}: pass loaders instead, or drop the "
                "normalisation, which belongs into the model."
            )
        if y.ndim != 1 or y.is_floating_point():
            raise DataError(
                f"The labels of a data set that is trained on must be whole numbers, one per image; got {y.dtype} of "
                f"shape {tuple(y.shape[1:])} each: pass loaders instead."
            )
        pixels.append(bytes_.to(torch.uint8))
        labels.append(y.long())
    found = torch.cat(labels)
    classes = names_of(data) or tuple(map(str, range(int(found.max()) + 1)))
    try:
        return Images(torch.cat(pixels), found, classes, source=type(data).__name__)
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


def _is_byte(values: torch.Tensor) -> torch.Tensor:
    return (values >= 0).all() & (values <= 255).all()
