"""Checks of what a record holds: one value per image, or a number, of the right type and within its range."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from gradreg.errors import DataError

_INF = math.inf


def check_floats(
    name: str, column: Tensor, rows: int, low: float = -_INF, high: float = _INF, *, infinite: bool = False
) -> None:
    """One float per image from `low` to `high`, never NaN; infinite only where that is allowed."""
    wanted = f"floats from {low:g} to {high:g}{'' if infinite else ', all finite'}"
    _check_shape(name, column, rows, wanted, column.is_floating_point())
    _check_all(name, column, (column >= low) & (column <= high) & (column.isfinite() | infinite), wanted)


def check_whole(name: str, column: Tensor, rows: int, low: int = 0, high: int | None = None) -> None:
    """One whole number per image from `low` to `high`."""
    top = torch.iinfo(torch.int64).max if high is None else high
    wanted = f"whole numbers from {low}" + ("" if high is None else f" to {high}")
    whole = not (column.is_floating_point() or column.is_complex() or column.dtype == torch.bool)
    _check_shape(name, column, rows, wanted, whole)
    _check_all(name, column, (column >= low) & (column <= top), wanted)


def check_bools(name: str, column: Tensor, rows: int) -> None:
    """Yes or no per image."""
    _check_shape(name, column, rows, "truth values", column.dtype == torch.bool)


def check_pixels(
    name: str, images: Tensor, rows: int, shape: Sequence[int] | None = None, box: tuple[float, float] = (0.0, 1.0)
) -> None:
    """Float images in the box."""
    wanted, (low, high) = f"{rows} images" + ("" if shape is None else f" of shape {tuple(shape)}"), box
    if (
        not images.is_floating_point()
        or images.shape[:1] != (rows,)
        or (shape is not None and images.shape[1:] != tuple(shape))
    ):
        raise DataError(f"{name} must be {wanted} as floats; got {images.dtype} of shape {tuple(images.shape)}.")
    _check_all(name, images, (images >= low) & (images <= high), f"pixels from {low:g} to {high:g}")


def check_number(name: str, value: float, low: float, high: float = _INF, *, infinite: bool = False) -> None:
    """A number from `low` to `high`, never NaN; infinite only where that is allowed."""
    if not low <= value <= high or (math.isinf(value) and not infinite):
        finite = "" if infinite or math.isfinite(high) else ", and be finite"
        bounds = f"be at least {low:g}" if high == _INF else f"lie between {low:g} and {high:g}"
        raise DataError(f"{name} must {bounds}{finite}; got {value}.")


def check_rising(name: str, values: Sequence[float], low: float = 0.0) -> None:
    """Finite numbers above `low` in rising order."""
    if not all(a < b for a, b in pairwise((low, *values))) or not all(map(math.isfinite, values)):
        raise DataError(f"{name} must be finite numbers above {low:g} in rising order; got {list(values)[:8]}.")


def check_length(name: str, values: Sequence[object], rows: int) -> None:
    """One entry per image."""
    if len(values) != rows:
        raise DataError(f"{name} must have one entry per image, {rows}; got {len(values)}.")


def _check_shape(name: str, column: Tensor, rows: int, wanted: str, right: bool) -> None:
    if not right or column.shape != (rows,):
        raise DataError(f"{name} must be {rows} {wanted}; got {column.dtype} of shape {tuple(column.shape)}.")


def _check_all(name: str, column: Tensor, good: Tensor, wanted: str) -> None:
    if not bool(good.all()):
        wrong = (~good).nonzero()[0].tolist()
        raise DataError(f"{name} must be {wanted}; got {column[tuple(wrong)].item()} for image {wrong[0]}.")
