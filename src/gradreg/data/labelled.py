"""Image files in one folder, with a table of their labels: labels.csv or metadata.csv, as Kaggle hands out."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import torch

from gradreg.data.arrays import SPLIT_SEED, TEST_SHARE
from gradreg.data.folder import SUFFIXES, ImageFolder
from gradreg.errors import DataError
from gradreg.reading import read_text

_TABLES = ("labels.csv", "metadata.csv", "train.csv")
_FILE = ("file_name", "filename", "file", "image", "path", "id", "name", "image_id")
_LABEL = ("label", "class", "target", "category", "labels", "breed")
_PART = ("split", "set", "partition", "fold", "part")
_OF_TEST = ("test", "val", "valid", "validation")


def table_in(root: Path) -> Path | None:
    """The table of labels in a folder, if it has one: a usual name, or the only .csv file."""
    found = next((root / name for name in _TABLES if (root / name).is_file()), None)
    others = sorted(path for path in root.glob("*.csv") if path.is_file())
    return found or (others[0] if len(others) == 1 else None)


def load(root: Path, table: Path) -> tuple[ImageFolder, ImageFolder]:
    """The training and test parts; without a column that says which is which, a fifth is the test part."""
    rows = list(csv.reader(io.StringIO(read_text(table), newline="")))
    if len(rows) < 2:
        raise DataError(f"{table} must have a line of names and one line per image; got {len(rows)} lines.")
    head = [name.strip().lower() for name in rows[0]]
    file, label = _column(head, _FILE, table), _column(head, _LABEL, table)
    part = next((head.index(name) for name in _PART if name in head), None)
    paths: list[str] = []
    labels: list[str] = []
    parts: list[str] = []
    for number, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(head):
            raise DataError(f"{table} must have {len(head)} cells in every line; got {len(row)} in line {number}.")
        paths.append(_image(root, row[file].strip(), table, number))
        labels.append(row[label].strip())
        parts.append("" if part is None else row[part].strip().lower())
    classes = tuple(sorted(set(labels), key=_order))
    whole = ImageFolder(
        tuple(paths), torch.tensor([classes.index(each) for each in labels], device="cpu"), classes, str(root)
    )
    if part is None:
        return whole.split(max(1, len(whole) // TEST_SHARE), SPLIT_SEED)
    held = [row for row, name in enumerate(parts) if name in _OF_TEST]
    kept = [row for row, name in enumerate(parts) if name not in _OF_TEST]
    if not held or not kept:
        raise DataError(f"{table} must name training and test images in its column {head[part]!r}; got one of them.")
    return whole.subset(kept), whole.subset(held)


def _column(head: Sequence[str], names: Sequence[str], table: Path) -> int:
    found = next((head.index(name) for name in names if name in head), None)
    if found is None:
        raise DataError(f"{table} must have a column {_FILE[0]} and a column {_LABEL[0]}; got {', '.join(head)[:200]}.")
    return found


def _image(root: Path, name: str, table: Path, number: int) -> str:
    """The file that a line names, inside of the folder; its ending may be left out."""
    inside = PurePosixPath(name.replace("\\", "/"))
    if not name or inside.is_absolute() or ".." in inside.parts:
        raise DataError(f"{table} must name files inside of {root}; got {name[:80]!r} in line {number}.")
    places = [root / inside, *(root / f"{inside}{suffix}" for suffix in SUFFIXES)]
    places += [root / "images" / inside, *(root / "images" / f"{inside}{suffix}" for suffix in SUFFIXES)]
    # `os.path.isfile` also answers for a name that no file can have, where `Path.is_file` raises.
    found = next((place for place in places if os.path.isfile(place) and place.name.lower().endswith(SUFFIXES)), None)
    if found is None:
        raise DataError(f"{table} names {name[:80]!r} in line {number}, and there is no such image in {root}.")
    return os.fspath(found)


def _order(label: str) -> tuple[int, int, str]:
    """Numbers by size, then words."""
    return (0, int(label), "") if label.isdecimal() and len(label) < 10 else (1, 0, label)
