"""Pixels within the box of a model, and what to do about pixels that are not."""

from math import isfinite
from typing import Any

import torch
from torch import Tensor

from gradreg.checks.tensors import NORMALISED
from gradreg.errors import DataError

_BARELY = 1e-2


def check_in_box(x: Tensor, box: tuple[float, float], name: str) -> None:
    """Refuse pixels outside of the box, NaN included, by one look at the device."""
    low, high = box
    found: list[Any] = torch.stack(x.aminmax()).tolist()
    smallest, largest = found
    if low <= smallest and largest <= high:
        return
    what = "Pixels" if name == "x" else f"Pixels of {name}"
    if not (isfinite(smallest) and isfinite(largest)):
        raise DataError(f"{name} must hold finite pixels; got NaN or inf in some of its {len(x)} images.")
    whole = box == (0.0, 1.0) and smallest >= 0 and NORMALISED < largest <= 255
    remedy = (
        "divide them by 255"
        if whole
        else "pass unnormalised images and put the normalisation inside, Classifier(model, mean=…, std=…)"
    )
    # Three digits hide what is beyond by rounding alone.
    digits = 9 if max(low - smallest, largest - high) < _BARELY else 3
    raise DataError(
        f"{what} run from {smallest:.{digits}g} to {largest:.{digits}g}, outside the box {low:g} to {high:g}: {remedy}."
    )
