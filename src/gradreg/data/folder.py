"""Image files of any size, a folder for each class, under train/ and val/ (or test/)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Side
from gradreg.checks.tensors import check_classes, check_index, check_labels
from gradreg.data.decode import Decoder, need_pillow
from gradreg.data.order import holdout
from gradreg.errors import DataError, warn

SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
)  # fmt: skip
# What usually lies beside images and is none. Whatever else is passed over is said.
_BESIDE = (".txt", ".md", ".html", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".db", ".ini", ".log")


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Files and their labels, listed once. `size` is the side of the square that a model is given."""

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    source: str
    size: Side = 224

    def __post_init__(self) -> None:
        check_fields(self)
        labels = check_labels(self.labels, len(self.paths), "labels")
        if len(labels):
            check_classes(labels, len(self.classes), "labels")

    def __len__(self) -> int:
        return len(self.paths)

    def subset(self, index: Tensor | Sequence[int] | slice) -> ImageFolder:
        """The files at some positions, in the order given."""
        rows = check_index("index", index, len(self))
        return replace(self, paths=tuple(self.paths[i] for i in rows.tolist()), labels=self.labels[rows])

    def split(self, n: int, seed: int) -> tuple[ImageFolder, ImageFolder]:
        """The files that remain when n are held out at random, and the held-out ones."""
        kept, held = holdout(len(self), n, seed, self.source)
        return self.subset(kept), self.subset(held)

    def floats(self, index: Tensor | Sequence[int] | slice = slice(None)) -> Tensor:
        """Central crops of the files at some positions (default: all), as float32 in [0, 1]."""
        need_pillow()
        pixels = Decoder(self.size).__getitems__([(path, 0) for path in self.subset(index).paths])
        if isinstance(pixels, str):
            raise DataError(pixels)
        return pixels.to(torch.float32).div_(255)


def load(root: Path) -> tuple[ImageFolder, ImageFolder]:
    """The training and test parts under `root`; of val/ and test/ the first that exists."""
    if not root.is_dir():
        raise DataError(f"The image folder {root} does not exist: check the path after folder:.")
    evaluation = next((name for name in ("val", "test") if (root / name).is_dir()), None)
    if evaluation is None or not (root / "train").is_dir():
        raise DataError(
            f"{root} must hold train/ and val/ (or test/), with a folder for each class in both, or images and a table "
            "labels.csv with the columns file_name and label."
        )
    train, test = listing(root / "train"), listing(root / evaluation)
    if different := sorted(set(train.classes) ^ set(test.classes)):
        where = "train" if different[0] in train.classes else evaluation
        raise DataError(
            f"The class folders of {root / 'train'} and {root / evaluation} differ: "
            f"{different[0]!r} is in {where}/ only ({len(different)} such)."
        )
    return train, test


def listing(part: Path) -> ImageFolder:
    """The image files under the class folders of `part`, in sorted order at every level."""
    classes = tuple(sorted(entry.name for entry in os.scandir(part) if _is_class(entry)))
    if not classes:
        raise DataError(f"{part} has no class folders: put the images of each class in a folder of its own.")
    paths: list[str] = []
    labels: list[int] = []
    others: list[str] = []
    for label, name in enumerate(classes):
        files, more = _files(part / name)
        if not files:
            raise DataError(f"The class folder {part / name} holds no images ({', '.join(SUFFIXES)}).")
        paths += files
        labels += [label] * len(files)
        others += more
    if others:
        warn(
            f"{len(others)} files below {part} are passed over, such as {others[0]}: images end in "
            f"{', '.join(SUFFIXES)}. Convert those that are images, or remove them."
        )
    return ImageFolder(tuple(paths), torch.tensor(labels, device="cpu"), classes, source=str(part))


def _is_class(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _files(folder: Path) -> tuple[list[str], list[str]]:
    """The image files of a class, links to folders followed, and those that are neither images nor usual beside them.

    Hidden files and folders are passed over: what an interrupted copy left lies in one.
    """
    images: list[str] = []
    others: list[str] = []
    for place, folders, names in os.walk(folder, onerror=_unreadable, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        _check_links(place, folders)
        for name in sorted(names):
            lower = name.lower()
            if not name.startswith(".") and not lower.endswith(_BESIDE):
                (images if lower.endswith(SUFFIXES) else others).append(os.path.join(place, name))
    return sorted(images), sorted(others)


def _check_links(place: str, folders: Sequence[str]) -> None:
    """Refuse a link to a folder around it: it would lead round in circles, and to the images of other classes."""
    for link in (Path(place, name) for name in folders):
        if link.is_symlink() and (target := link.resolve()) in _around(Path(place)):
            raise DataError(f"{link} must not be a link to a folder that it lies in, {target}: remove it.")


def _around(place: Path) -> set[Path]:
    """The folder itself and all around it, on the way that links led and where it really lies."""
    real = place.resolve()
    return {real, *real.parents, *(folder.resolve() for folder in place.parents)}


def _unreadable(error: OSError) -> None:
    raise DataError(f"The folder {error.filename} cannot be read ({error.strerror}): its images would be missing.")
