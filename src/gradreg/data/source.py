"""Data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_path, shown
from gradreg.data import arrays, cifar10, cifar10_1, fashion_mnist, folder, labelled, mnist5k
from gradreg.data.files import data_root
from gradreg.data.folder import ImageFolder
from gradreg.data.images import DataSet, Images
from gradreg.errors import DataError, did_you_mean


class Entry(NamedTuple):
    """A data set that can be loaded by name: how, what it is, and the radii robust error is quoted at on it."""

    load: Callable[[Path], tuple[Images, Images]]
    description: str
    radii: Mapping[str, tuple[float, ...]] = MappingProxyType({})


DATA_SETS: dict[str, Entry] = {
    "mnist5k": Entry(mnist5k.load, "5,000 MNIST digits, embedded", mnist5k.RADII),
    "fashion-mnist": Entry(fashion_mnist.load, "70,000 grey images of clothes", fashion_mnist.RADII),
    "cifar10": Entry(cifar10.load, "60,000 small photographs of ten classes"),
    "cifar10.1": Entry(cifar10_1.load, "2,000 new test images for CIFAR-10"),
}
FOLDER, ARRAYS = "folder:", "npz:"
_EXAMPLES = {FOLDER: "photos", ARRAYS: "digits.npz"}


def names() -> tuple[str, ...]:
    """The names that `load` accepts; PATH stands for a file or a folder of your own."""
    return (*DATA_SETS, f"{ARRAYS}PATH", f"{FOLDER}PATH")


def choices() -> str:
    """The names as a help text lists them: mnist5k, fashion-mnist, cifar10 or folder:PATH."""
    *first, last = names()
    return f"{', '.join(first)} or {last}"


@validated
def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> DataSet:
    """A data set by name, from `data_dir`, else $GRADREG_DATA, else the user's cache folder.

    Existing files are used if their content is valid, whatever their checksum; missing files are downloaded and must
    have the official checksum.
    """
    if not isinstance(name, str):
        raise DataError(f"name must be that of a data set, {choices()}; got {shown(name)}.")
    if name in (ARRAYS, FOLDER):  # an empty path would be the current folder
        raise DataError(f"{name} must be followed by a path, for example {name}{_EXAMPLES[name]}; got none.")
    if name.startswith(ARRAYS):
        return DataSet(name, *arrays.load(_place(name.removeprefix(ARRAYS))))
    if name.startswith(FOLDER):
        return DataSet(name, *_folder(_place(name.removeprefix(FOLDER))))
    if name not in DATA_SETS:
        raise DataError(f"There is no data set {name!r}{did_you_mean(name, names())}: choose {choices()}.")
    entry = DATA_SETS[name]
    return DataSet(name, *entry.load(data_root(data_dir)), radii=entry.radii)


def _place(path: str) -> Path:
    checked = check_path("The data set", path, DataError)
    try:
        return checked.expanduser()
    except RuntimeError:  # of ~ and a user that this machine does not have
        return checked


def _folder(root: Path) -> tuple[ImageFolder, ImageFolder]:
    """Class folders under train/ and val/, or files with a table of their labels."""
    table = None if not root.is_dir() or (root / "train").is_dir() else labelled.table_in(root)
    return folder.load(root) if table is None else labelled.load(root, table)


def known_radii(name: str) -> Mapping[str, tuple[float, ...]]:
    """The radii, by threat, that robust error is quoted at on the data set of that name, if it has its own."""
    return DATA_SETS[name].radii if name in DATA_SETS else {}
