"""Arrays of one's own: an .npz file with images and labels, in two parts or in one."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy

from gradreg.checks.scalars import check_integer
from gradreg.data.images import Images
from gradreg.errors import DataError
from gradreg.reading import check_regular
from gradreg.storage import check_memory

# Names of the arrays in a part, images first: Keras', MedMNIST's, NumPy users' own.
_TRAIN = (
    ("x_train", "y_train"),
    ("train_images", "train_labels"),
    ("X_train", "y_train"),
    ("images_train", "labels_train"),
)
_TEST = (
    ("x_test", "y_test"), ("test_images", "test_labels"), ("X_test", "y_test"), ("images_test", "labels_test"),
    ("x_val", "y_val"), ("val_images", "val_labels"),
)  # fmt: skip
_ONE = (("images", "labels"), ("x", "y"), ("X", "y"), ("image", "label"), ("data", "labels"), ("arr_0", "arr_1"))
TEST_SHARE = 5
"""Where a data set has one part, one image in so many is a test image, chosen by a fixed seed."""
SPLIT_SEED = 0


def load(path: Path) -> tuple[Images, Images]:
    """The training and test parts of an .npz file; of a file with one part, a fifth is the test part."""
    arrays = _Arrays(path)
    train, test, one = (arrays.names(pairs) for pairs in (_TRAIN, _TEST, _ONE))
    if train and test:
        parts = [arrays.part(*names) for names in (train, test)]
        classes = max(len(part.classes) for part in parts)
        names = tuple(map(str, range(classes)))
        kept, held = (Images(part.pixels, part.labels, names, str(path)) for part in parts)
        return kept, held
    if not one:
        raise DataError(
            f"{path} must hold arrays named x_train, y_train, x_test, y_test, or images and labels; got "
            f"{', '.join(list(arrays.sizes)[:8]) or 'nothing'}."
        )
    return split(arrays.part(*one))


def split(part: Images) -> tuple[Images, Images]:
    """A fifth of the images as the test part."""
    held = check_integer("The number of images", len(part) // TEST_SHARE, least=1, usual="five images per test image")
    return part.split(held, SPLIT_SEED)


class _Arrays:
    """The arrays of an .npz file, read one at a time; nothing in them is unpickled."""

    def __init__(self, path: Path) -> None:
        check_regular(path)
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self.sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        except Exception as error:
            raise self._damaged(error) from error

    def names(self, pairs: Any) -> tuple[str, str] | None:
        """The first pair of names that is there."""
        return next(((x, y) for x, y in pairs if x in self.sizes and y in self.sizes), None)

    def part(self, images: str, labels: str) -> Images:
        """Bytes and their labels; floats must be bytes over 255, which loses nothing."""
        pixels, y = self._read(images), self._read(labels)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
            raise DataError(f"{self.path}: {labels} must hold whole numbers, one per image; got {_described(y)}.")
        classes = int(y.max()) + 1 if len(y) else 1
        check_integer(
            f"{self.path}: the largest label of {labels}", classes - 1, least=0, most=999_999, error=DataError
        )
        bytes_ = torch.from_numpy(_bytes(pixels, f"{self.path}: {images}"))
        return Images(bytes_, torch.from_numpy(y.astype(np.int64)), tuple(map(str, range(classes))), str(self.path))

    def _read(self, name: str) -> np.ndarray[Any, Any]:
        check_memory(self.path, self.sizes[name])
        try:
            with zipfile.ZipFile(self.path) as archive:
                data = io.BytesIO(archive.read(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name))
            version = npy.read_magic(data)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, by_columns, dtype = read(data)
            if dtype.hasobject or dtype.kind not in "uif":
                raise ValueError(f"{name} holds {dtype}, not numbers")
            found = np.frombuffer(data.read(), dtype)
            return found.reshape(shape, order="F" if by_columns else "C")
        except Exception as error:  # numpy parses the header as Python, which can go wrong in many ways
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DataError:
        words = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        return DataError(f"{self.path} cannot be read as an .npz file ({words}).")


def _bytes(pixels: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Images as bytes (image, channel, height, width)."""
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.ndim == 4 and pixels.shape[3] in (1, 3) and pixels.shape[1] not in (1, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        raise DataError(f"{name} must hold grey or RGB images, (N, H, W), (N, H, W, C) or (N, C, H, W); got "
                        f"{_described(pixels)}.")  # fmt: skip
    if pixels.dtype.kind == "f":
        if pixels.size and (pixels.min() < 0 or pixels.max() > 1):
            low, high = float(pixels.min()), float(pixels.max())
            raise DataError(f"{name} must hold bytes, or floats from 0 to 1; got floats from {low:g} to {high:g}.")
        rounded = np.round(255 * pixels)
        if not (np.abs(rounded / 255 - pixels) < 1e-6).all():
            raise DataError(
                f"{name} must hold bytes, or bytes over 255; got floats in between: pass them in Python, or save bytes."
            )
        pixels = rounded
    elif pixels.size and pixels.max() == 1:
        raise DataError(
            f"{name} must hold bytes from 0 to 255; got whole numbers from 0 to 1, of which 1 would be nearly black: "
            "multiply them by 255."
        )
    if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 255):
        raise DataError(f"{name} must hold pixels from 0 to 255; got {pixels.min()} to {pixels.max()}.")
    return np.ascontiguousarray(pixels.astype(np.uint8))


def _described(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"
