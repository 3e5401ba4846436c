"""CIFAR-10 (Krizhevsky 2009): 50,000 + 10,000 colour 32x32 images, in either official layout, unpacked or not."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gradreg.data import pickles
from gradreg.data.files import MOST, damaged, download, read, unpacked
from gradreg.data.images import Images
from gradreg.errors import DataError

_ADDRESS = "https://www.cs.toronto.edu/~kriz/"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_TEST = ("test_batch",)
_ROWS = 10_000  # images in each file
_SHAPE = (3, 32, 32)
_VALUES = 3 * 32 * 32
_MOST_UNPACKED = 1 << 29  # the archives hold 185 MB

_Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]


class _Layout(NamedTuple):
    """One of the two official forms."""

    folder: str
    archive: str
    suffix: str
    parse: Callable[[bytes, str], _Arrays]

    def files(self) -> tuple[str, ...]:
        """Names of the data files."""
        return tuple(f"{name}{self.suffix}" for name in _TRAIN + _TEST)


def _parse_binary(data: bytes, source: str) -> _Arrays:
    """Rows of a label byte and 3,072 pixel bytes."""
    row = 1 + _VALUES
    if len(data) != _ROWS * row:
        raise damaged(source, f"it has {len(data)} bytes, {_ROWS} images of {row} bytes make {_ROWS * row}")
    table = np.frombuffer(data, np.uint8).reshape(_ROWS, row)
    return table[:, 1:], table[:, 0].astype(np.int64)


def _parse_python(data: bytes, source: str) -> _Arrays:
    """A pickled dictionary with `data`, rows of 3,072 pixel bytes, and `labels`, a list of numbers."""
    content = pickles.load(data, source)
    pixels, labels = content.get("data"), content.get("labels")
    if not isinstance(pixels, pickles.PickledArray) or not isinstance(labels, list):
        raise damaged(source, "it has no array 'data' or no list 'labels'")
    if not all(type(label) is int for label in labels):  # lists inside lists would take numpy exponential time
        raise damaged(source, "a label in it is not a whole number")
    try:
        return pixels.bytes().reshape(_ROWS, _VALUES), np.array(labels, dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise damaged(source, error) from error


_BINARY = _Layout("cifar-10-batches-bin", "cifar-10-binary.tar.gz", ".bin", _parse_binary)
_PYTHON = _Layout("cifar-10-batches-py", "cifar-10-python.tar.gz", "", _parse_python)
_BINARY_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"


def load(root: Path) -> tuple[Images, Images]:
    """The training and test parts, from files or an archive in `root`; an archive is downloaded if there is neither."""
    for layout in (_BINARY, _PYTHON):
        for folder in (root / layout.folder, root):
            if any((folder / name).is_file() for name in layout.files()):
                return _parts(layout, _from_folder(layout, folder))
    for layout in (_BINARY, _PYTHON):
        if (root / layout.archive).is_file():
            return _parts(layout, _from_archive(layout, root / layout.archive))
    wanted = f"CIFAR-10 needs {_BINARY.folder}/ or {_PYTHON.folder}/ or one of their .tar.gz archives in {root}"
    download(_ADDRESS + _BINARY.archive, root / _BINARY.archive, _BINARY_MD5, wanted)
    return _parts(_BINARY, _from_archive(_BINARY, root / _BINARY.archive))


def _from_folder(layout: _Layout, folder: Path) -> dict[str, bytes]:
    if missing := [name for name in layout.files() if not (folder / name).is_file()]:
        raise DataError(f"CIFAR-10 in {folder} lacks {', '.join(missing)}: unpack {layout.archive} again.")
    return {str(folder / name): read(folder / name) for name in layout.files()}


def _from_archive(layout: _Layout, archive: Path) -> dict[str, bytes]:
    """Data files read straight from the archive: nothing is unpacked to disk, so no path in it can do harm."""
    wanted = {f"{layout.folder}/{name}" for name in layout.files()}
    found: dict[str, bytes] = {}
    try:
        with unpacked(archive, _MOST_UNPACKED) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in wanted:
                    found[f"{archive}/{name}"] = _content(tar, member, f"{archive}/{name}" in found)
    except DataError:
        raise
    except Exception as error:  # tarfile and zlib raise almost anything for a damaged archive
        raise damaged(archive, error) from error
    if len(found) != len(wanted):
        raise damaged(archive, f"it has {len(found)} of {len(wanted)} data files")
    return dict(sorted(found.items()))


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, again: bool) -> bytes:
    """A data file in an archive: a plain file that is there once, not a link to something else."""
    file = tar.extractfile(member) if member.isreg() and not again else None
    if file is None:
        raise ValueError(f"{member.name} in it is there twice" if again else f"{member.name} in it is not a plain file")
    if member.size > MOST:
        raise ValueError(f"{member.name} in it has {member.size:,} bytes")
    return file.read()


def _parts(layout: _Layout, files: dict[str, bytes]) -> tuple[Images, Images]:
    """Joined in order of file names, which puts the test file last."""
    checked = [_images(layout, data, source) for source, data in files.items()]
    return _join(checked[: len(_TRAIN)]), _join(checked[len(_TRAIN) :])


def _images(layout: _Layout, data: bytes, source: str) -> Images:
    pixels, labels = layout.parse(data, source)
    return Images(torch.from_numpy(pixels.reshape(-1, *_SHAPE).copy()), torch.from_numpy(labels), CLASSES, source)


def _join(parts: list[Images]) -> Images:
    return Images(
        torch.cat([part.pixels for part in parts]),
        torch.cat([part.labels for part in parts]),
        CLASSES,
        source=str(Path(parts[0].source).parent),
    )
