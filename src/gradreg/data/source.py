"""Data sets by name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradreg.data import cifar10, fashion_mnist, folder, mnist5k
from gradreg.data.batches import Batches, FolderBatches
from gradreg.data.files import data_root
from gradreg.data.folder import ImageFolder
from gradreg.data.images import DataSet, Images
from gradreg.errors import DataError

LOADERS: dict[str, Callable[[Path], tuple[Images, Images]]] = {
    "mnist5k": mnist5k.load,
    "fashion-mnist": fashion_mnist.load,
    "cifar10": cifar10.load,
}
FOLDER = "folder:"


def names() -> tuple[str, ...]:
    """What `load` understands; PATH stands for a folder of yours."""
    return (*LOADERS, f"{FOLDER}PATH")


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> DataSet:
    """A data set by name, from `data_dir`, else $GRADREG_DATA, else the user's cache folder.

    Files that are there are used if they are sound inside, whatever their checksum; files that are not are downloaded
    and must have the official one.
    """
    if name.startswith(FOLDER):
        return DataSet(name, *folder.load(Path(name.removeprefix(FOLDER)).expanduser()))
    if name not in LOADERS:
        nearest = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0)[0]
        raise DataError(f"There is no data set {name!r} (did you mean {nearest!r}?): there are {', '.join(names())}.")
    return DataSet(name, *LOADERS[name](data_root(data_dir)))


def batches(part: Images | ImageFolder, batch_size: int, **options: Any) -> Batches | FolderBatches:
    """`Batches` or `FolderBatches` with the given options, whichever the part of a data set needs."""
    if isinstance(part, Images):
        return Batches(part, batch_size, **options)
    return FolderBatches(part, batch_size, **options)
