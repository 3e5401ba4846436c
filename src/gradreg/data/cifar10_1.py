"""CIFAR-10.1 v6 (Recht et al. 2018): 2,000 new test images for CIFAR-10, whose training part goes with them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from gradreg.data import cifar10
from gradreg.data.files import damaged, read
from gradreg.data.images import Images
from gradreg.errors import DataError

_PIXELS, _LABELS = "cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"
_SHAPE = (2000, 32, 32, 3)


def load(root: Path) -> tuple[Images, Images]:
    """CIFAR-10's training part, and the new test images from the two files of their authors in `root`."""
    folder = next((place for place in (root, root / "CIFAR-10.1") if (place / _PIXELS).is_file()), None)
    if folder is None:
        raise DataError(
            f"CIFAR-10.1 needs {_PIXELS} and {_LABELS} in {root}: copy them there from the data set's repository, "
            "modestyachts/CIFAR-10.1."
        )
    pixels, labels = _array(folder / _PIXELS, _SHAPE), _array(folder / _LABELS, _SHAPE[:1])
    if pixels.dtype != np.uint8:
        raise damaged(folder / _PIXELS, f"it holds {pixels.dtype}, not bytes")
    images = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
    test = Images(images, torch.from_numpy(labels.astype(np.int64)), cifar10.CLASSES, str(folder / _PIXELS))
    return cifar10.load(root)[0], test


def _array(path: Path, shape: tuple[int, ...]) -> NDArray[np.integer]:
    """A .npy file of that shape, checked before numpy makes room for what the header claims."""
    data = io.BytesIO(read(path))
    try:
        version = npy.read_magic(data)
        found, by_columns, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(data)
        if found != shape or by_columns or not np.issubdtype(dtype, np.integer):
            raise ValueError(f"it must hold whole numbers of shape {shape}")
        return np.frombuffer(data.read(), dtype).reshape(shape)
    except Exception as error:  # numpy parses the header as Python, which can go wrong in many ways
        raise damaged(path, error) from error
