"""Image files in one folder, with a table of their labels: labels.csv or metadata.csv, as Kaggle hands out."""

from __future__ import annotations

import csv
import io
import os
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath

import torch

from gradreg.data.arrays import SPLIT_SEED, TEST_SHARE
from gradreg.data.folder import SUFFIXES, ImageFolder
from gradreg.errors import DataError, words_of
from gradreg.reading import read_text

_TABLES = ("labels.csv", "metadata.csv", "train.csv")
_FILE = ("file_name", "filename", "file", "image", "path", "id", "name", "image_id")
_LABEL = ("label", "class", "target", "category", "labels", "breed")
_PART = ("split", "set", "partition", "fold", "part")
_OF_TRAINING = ("train", "training")
_OF_TEST = ("test", "testing", "val", "valid", "validation")


def table_in(root: Path) -> Path | None:
    """The table of labels in a folder, if it has one: a usual name, or the only .csv file."""
    found = next((root / name for name in _TABLES if (root / name).is_file()), None)
    others = sorted(path for path in root.glob("*.csv") if path.is_file())
    return found or (others[0] if len(others) == 1 else None)


def load(root: Path, table: Path) -> tuple[ImageFolder, ImageFolder]:
    """The training and test parts; without a column that says which is which, a fifth is the test part."""
    (_, head), *rows = _lines(table)
    names = [name.strip().lower() for name in head]
    _check_once(names, table)
    file, label = _column(names, _FILE, table), _column(names, _LABEL, table)
    part = next((names.index(name) for name in _PART if name in names), None)
    lines: dict[str, int] = {}
    labels: list[str] = []
    for number, row in rows:
        if len(row) != len(head):
            raise DataError(f"{table} must have {len(head)} cells in every line; got {len(row)} in line {number}.")
        path = _image(root, row[file].strip(), table, number)
        if path in lines:
            raise DataError(f"{table} must name a file once; got {path} in lines {lines[path]} and {number}.")
        lines[path] = number
        labels.append(_label(row[label].strip(), table, number))
    if len(labels) < 2:
        raise _too_short(table, 1 + len(labels))
    classes = tuple(sorted(set(labels), key=_order))
    _check_spelling(classes, table)
    codes = {name: code for code, name in enumerate(classes)}
    whole = ImageFolder(tuple(lines), torch.tensor([codes[each] for each in labels], device="cpu"), classes, str(root))
    if part is None:
        return whole.split(max(1, len(whole) // TEST_SHARE), SPLIT_SEED)
    tests = [_is_test(row[part].strip().lower(), names[part], table, number) for number, row in rows]
    if all(tests) or not any(tests):
        raise DataError(f"{table} must name training and test images in its column {names[part]!r}; got one of them.")
    held = [row for row, test in enumerate(tests) if test]
    return whole.subset([row for row, test in enumerate(tests) if not test]), whole.subset(held)


def _lines(table: Path) -> list[tuple[int, list[str]]]:
    """The lines that are not empty, each with its number: that of names first."""
    # Not strict, the reader would take all lines behind a quote that is never closed for one cell.
    reader = csv.reader(io.StringIO(read_text(table), newline=""), strict=True)
    try:
        lines = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise DataError(
            f"{table} cannot be read as a table ({words_of(error)}, up to line {reader.line_num}): look for a quote "
            "that is not closed."
        ) from error
    if len(lines) < 2:
        raise _too_short(table, len(lines))
    return lines


def _too_short(table: Path, lines: int) -> DataError:
    return DataError(f"{table} must have a line of names and then two or more, one line per image; got {lines} lines.")


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
    # Letters that steer a terminal or end a line are in no usual name, but behind a quote at a wrong place.
    if any(unicodedata.category(letter) == "Cc" for letter in name):
        raise DataError(f"{table} must name files in printable letters; got {name[:80]!r} in line {number}.")
    places = [root / inside, *(root / f"{inside}{suffix}" for suffix in SUFFIXES)]
    places += [root / "images" / inside, *(root / "images" / f"{inside}{suffix}" for suffix in SUFFIXES)]
    # `os.path.isfile` also answers for a name that no file can have, where `Path.is_file` raises.
    found = next((place for place in places if os.path.isfile(place) and place.name.lower().endswith(SUFFIXES)), None)
    if found is None:
        raise DataError(f"{table} names {name[:80]!r} in line {number}, and there is no such image in {root}.")
    return os.fspath(found)


def _label(label: str, table: Path, number: int) -> str:
    if not label or any(unicodedata.category(letter) == "Cc" for letter in label):
        raise DataError(
            f"{table} must have a label of printable letters in every line; got {label[:80]!r} in line {number}: leave "
            "out images without one."
        )
    return label


def _is_test(word: str, column: str, table: Path, number: int) -> bool:
    if word not in _OF_TRAINING + _OF_TEST:
        raise DataError(
            f"{table} must have one of {', '.join(_OF_TRAINING + _OF_TEST)} in its column {column!r}; got "
            f"{word[:80]!r} in line {number}."
        )
    return word in _OF_TEST


def _check_once(head: Sequence[str], table: Path) -> None:
    """Refuse two columns of one name, of which only one would be read."""
    twice = next((name for name in head if name and head.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{table} must name a column once; got {twice[:80]!r} {head.count(twice)} times.")


def _check_spelling(classes: Sequence[str], table: Path) -> None:
    """Refuse one number in two spellings, such as 1 and 01, or one word in two codes: they would be two classes."""
    words: dict[str, str] = {}
    for name in classes:
        other = words.setdefault(unicodedata.normalize("NFC", name), name)
        if other != name:
            raise DataError(f"{table} must write a label in one way; got {other!a} and {name!a}, which are one word.")
    for one, other in pairwise(classes):
        if _order(one)[0] == 0 and _order(one)[:2] == _order(other)[:2]:
            raise DataError(f"{table} must write a label in one way; got {one!r} and {other!r}, which are one number.")


def _order(label: str) -> tuple[int, int, str]:
    """Numbers by size, then words; of two spellings of a number the order is always the same."""
    return (0, int(label), label) if label.isdecimal() and len(label) < 10 else (1, 0, label)
