"""The per-image columns of an evaluation as CSV: one row per image, numbers to the last bit."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from gradreg.checks.scalars import shown
from gradreg.codec import Tensors
from gradreg.errors import DataError

Column = Tensor | tuple[str, ...] | None
"""Numbers, words, or nothing where bounds were refused."""

_BOUNDS = ("gradient_norm", "lipschitz_bound", "omega_bound")
_ATTACKED = ("distance", "winner", "forwards", "backwards")
_SMOOTHED = ("prediction", "radius", "samples")
_FRESH = {"fresh": "fresh.wrong", "fresh_share": "fresh.share"}
_TYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
}
_N = TypeVar("_N", int, float)
_WORDS = "text"
_NOTHING = "none"


def take_columns(plain: dict[str, Any], tensors: Tensors) -> dict[str, Column]:
    """The columns by name, in order; the words among them are taken out of `plain`."""
    columns: dict[str, Column] = {}
    for name, path in _paths(plain):
        if path.endswith(".winner"):
            columns[name] = tuple(_parent(plain, path).pop("winner"))
        else:
            columns[name] = tensors.get(path)
    return columns


def put_columns(plain: dict[str, Any], columns: Mapping[str, Column]) -> Tensors:
    """The tensors by path; words are put back into `plain`."""
    tensors: Tensors = {}
    for name, path in _paths(plain):
        column = columns[name]
        if isinstance(column, Tensor):
            tensors[path] = column
        elif column is not None:
            _parent(plain, path)["winner"] = list(column)
    return tensors


def types(columns: Mapping[str, Column]) -> dict[str, str]:
    """What each column holds: float32, int64, …, text or none."""
    return {name: _type(column) for name, column in columns.items()}


def dumps(columns: Mapping[str, Column]) -> str:
    """The table as text, with a line of names."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    rows = len(next(column for column in columns.values() if column is not None))
    writer.writerows(zip(*(_cells(column, rows) for column in columns.values()), strict=True))
    return file.getvalue()


def loads(text: str, described: Mapping[str, str], rows: int) -> dict[str, Column]:
    """The columns that `dumps` wrote, of these types."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    names, cells = next(lines), list(lines)
    if names != list(described) or len(cells) != rows or rows == 0:
        raise DataError(
            f"Its table must have {rows} rows and {len(described)} columns; got {len(cells)} and {len(names)}."
        )
    by_column = list(zip(*cells, strict=True))
    return {name: _column(by_column[at], kind) for at, (name, kind) in enumerate(described.items())}


def _paths(plain: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every column's name, and its path in the record."""
    for name in ("index", "label", "prediction", "margin"):
        yield name, name
    # Only randomised models have fresh draws.
    for name, path in _FRESH.items() if plain.get("fresh") else ():
        yield name, path
    for threat in plain["threats"]:
        for field in _ATTACKED:
            yield f"{threat}.{field}", f"threats.{threat}.attacked.{field}"
        for name, path in _FRESH.items() if plain["threats"][threat].get("fresh") else ():
            yield f"{threat}.{name}", f"threats.{threat}.{path}"
        for field in _BOUNDS:
            yield f"{threat}.{field}", f"threats.{threat}.bounded.{field}"
        # Files of before there were calibrated bounds do not name them, and nor do those that were refused.
        if (plain["threats"][threat]["bounded"] or {}).get("calibrated"):
            yield f"{threat}.calibrated_bound", f"threats.{threat}.bounded.calibrated.bound"
        # Files of before there were confirmations do not name them.
        for row, confirmed in enumerate(plain["threats"][threat].get("confirmed", ())):
            yield f"{threat}.{confirmed['attack']}[{confirmed['eps']:g}]", f"threats.{threat}.confirmed.{row}.robust"
    for row, smoothed in enumerate(plain["smoothing"]):
        for field in _SMOOTHED:
            yield f"smoothing[{smoothed['sigma']:g}].{field}", f"smoothing.{row}.{field}"
        # Files of before frequencies were kept do not name them.
        if smoothed.get("seen") is not None:
            yield f"smoothing[{smoothed['sigma']:g}].frequency", f"smoothing.{row}.seen.frequency"


def _parent(plain: Mapping[str, Any], path: str) -> dict[str, Any]:
    _, threat, part, _ = path.split(".")
    found: dict[str, Any] = plain["threats"][threat][part]
    return found


def _type(column: Column) -> str:
    if column is None:
        return _NOTHING
    return str(column.dtype).removeprefix("torch.") if isinstance(column, Tensor) else _WORDS


def _cells(column: Column, rows: int) -> Sequence[str]:
    if column is None:
        return ("",) * rows
    if not isinstance(column, Tensor):
        return column
    # 1 for yes and 0 for no. repr of a number is the shortest text that gives the same double, as every float32 is.
    return [repr(value) for value in (column.int() if column.dtype == torch.bool else column).tolist()]


def _column(cells: Sequence[str], kind: str) -> Column:
    if kind == _NOTHING:
        return None
    if kind == _WORDS:
        return tuple(cells)
    if kind not in _TYPES:
        raise DataError(f"The type of a column must be one of {', '.join(_TYPES)}; got {kind[:40]!r}.")
    dtype = _TYPES[kind]
    if dtype.is_floating_point:
        return torch.tensor(_numbers(float, cells), dtype=torch.float64, device="cpu").to(dtype)
    numbers = _numbers(int, cells)
    if dtype == torch.bool and not set(numbers) <= {0, 1}:
        raise DataError("A truth value must be 0 or 1 in the table.")
    return torch.tensor(numbers, dtype=dtype, device="cpu")


def _numbers(kind: type[_N], cells: Sequence[str]) -> list[_N]:
    """Numbers as `_cells` writes them. Python also reads spaces, underscores, signs and digits that it never writes."""
    numbers = []
    for cell in cells:
        try:
            number = kind(cell)
        except ValueError:
            number = None
        if number is None or repr(number) != cell:
            raise DataError(f"Its table must hold numbers such as {kind(1)!r} there; got {shown(cell)}.")
        numbers.append(number)
    return numbers
