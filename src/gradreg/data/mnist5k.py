"""The default set: 5,000 real MNIST digits that lie in the package, 400 + 100 of each class.

Classes take turns in both parts, so that the first n images are a balanced choice for every n. Where the images come
from and their licence, which is not gradreg's, stand in digits/NOTICE.md.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from gradreg.data.idx import read_labels, read_pixels
from gradreg.data.images import Images
from gradreg.errors import DataError

HOME = Path(__file__).parent / "digits"
CLASSES = tuple("0123456789")
# A digit's strokes are white on black: what changes a photograph, 8/255, does nothing to it.
RADII = {"linf": (0.05, 0.1), "l2": (0.75, 1.5)}
_SHA256 = "d7b301b2d3fc2b24eb576429164978ca5c168b047e52c60b30b1af9463d6ebcf"


def load(_root: Path) -> tuple[Images, Images]:
    """The fixed split; it needs no data directory."""
    return read(HOME)


def read(folder: Path) -> tuple[Images, Images]:
    """The training and test parts from idx files in `folder`, which must be those of the package."""
    try:
        train, test = _part(folder, "train"), _part(folder, "test")
    except (DataError, OSError) as error:
        raise _damaged(folder) from error
    if digest(train, test) != _SHA256:
        raise _damaged(folder)
    return train, test


def digest(train: Images, test: Images) -> str:
    """SHA-256 of all labels and pixels."""
    total = hashlib.sha256()
    for column in (test.labels, test.pixels, train.labels, train.pixels):
        total.update(column.numpy().tobytes())
    return total.hexdigest()


def _part(folder: Path, part: str) -> Images:
    pixels = read_pixels(folder / f"{part}-images-idx3-ubyte.gz")
    labels = read_labels(folder / f"{part}-labels-idx1-ubyte.gz")
    return Images(pixels, labels, CLASSES, source=f"mnist5k ({part})")


def _damaged(folder: Path) -> DataError:
    return DataError(f"The images of mnist5k in {folder} are damaged or incomplete: reinstall gradreg.")
