"""The idx format of MNIST and its relatives: a small header, then the bytes of an array."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradreg.data.files import damaged, read
from gradreg.errors import DataError


def read_pixels(path: Path) -> Tensor:
    """Grey images as bytes, with a channel."""
    return torch.from_numpy(_parse(read(path), path, 3).copy()).unsqueeze(1)


def read_labels(path: Path) -> Tensor:
    """Labels, as int64."""
    return torch.from_numpy(_parse(read(path), path, 1).astype(np.int64))


def _parse(data: bytes, source: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of an idx file: 0, 0, a type code (8: bytes), the number of dimensions, their sizes, the values."""
    header = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(
            f"{source} begins with {data[:4].hex() or 'nothing'}, not with the {bytes((0, 0, 8, dimensions)).hex()} "
            f"of an idx file of bytes in {dimensions} dimensions: download it again."
        )
    if len(data) < header:
        raise damaged(source, "its header is incomplete")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", dimensions, offset=4))
    if len(data) - header != math.prod(shape):
        raise damaged(source, f"its header announces {math.prod(shape)} values, {len(data) - header} follow")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
