"""metrics.jsonl and steps.jsonl: one JSON object per epoch or step, with plain values of the right type and range."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from gradreg.checks.scalars import shown
from gradreg.columns import check_number
from gradreg.errors import DataError, RunError
from gradreg.reading import json_table

_COUNTS = ("step", "rollbacks", "held_out", "probed")
_FRACTIONS = (
    *("clean", "probe", "single_step", "commonest", "zero_gradients"),
    *("train_accuracy", "clipped", "negative_slopes", "second_steps"),
)
_AMOUNTS = ("hours", "images_per_second", "lr", "grad_norm", "grad_norm_max", "omega")
_WORDS = ("commit", "machine")
_PLAIN = (str, int, float, type(None))


def parse(text: str, source: object) -> list[dict[str, Any]]:
    """One table per epoch, in order; a last line that a kill cut short is left out, any other damage is an error."""
    rows = _parse(text, source, "epoch")
    missing = next((number for number, row in enumerate(rows, 1) if row["epoch"] != number), None)
    if missing is not None:
        raise RunError(f"{source} is damaged: it must have a line for every epoch; got none for epoch {missing}.")
    return rows


def parse_steps(text: str, source: object) -> list[dict[str, Any]]:
    """The same of steps.jsonl, whose lines are of steps."""
    return _parse(text, source, "step")


def _parse(text: str, source: object, key: str) -> list[dict[str, Any]]:
    *lines, cut = text.split("\n")
    rows = [_row(line, number, source, key) for number, line in enumerate(lines, 1)]
    if cut:
        with suppress(RunError):
            rows.append(_row(cut, len(lines) + 1, source, key))
    for before, row in pairwise(rows):
        if row[key] <= before[key]:
            raise RunError(
                f"{source} is damaged: {key} {row[key]} follows {key} {before[key]}. Two processes may have "
                "written to it; delete the lines of one of them."
            )
    return rows


def _row(line: str, number: int, source: object, key: str) -> dict[str, Any]:
    try:
        row = json_table(line, f"line {number}")
        _check(row, key)
    except DataError as error:
        raise RunError(f"{source} is damaged in line {number} ({str(error).rstrip('.')}): delete that line.") from error
    return row


def _check(row: Mapping[str, Any], key: str) -> None:
    _check_whole(key, row.get(key), 1)
    check_row(row)


def check_row(row: Mapping[str, Any]) -> None:
    """Raise a DataError for a number of an epoch or a step that is of the wrong type or out of its range."""
    for name, value in row.items():
        if not isinstance(value, _PLAIN):
            raise DataError(f"{name} must be a number or a text; got a {type(value).__name__}.")
    for name in _COUNTS:
        if name in row:
            _check_whole(name, row[name], 0)
    for names, high in ((_FRACTIONS, 1.0), (_AMOUNTS, float("inf"))):
        for name in names:
            value = row.get(name)
            if isinstance(value, bool | str):
                raise DataError(f"{name} must be a number; got {shown(value)}.")
            if value is not None:
                check_number(name, value, 0.0, high)
    if "best" in row and not isinstance(row["best"], bool):
        raise DataError(f"best must be true or false; got {shown(row['best'])}.")
    for name in _WORDS:
        if not isinstance(row.get(name, ""), str):
            raise DataError(f"{name} must be a text; got {shown(row[name])}.")


def _check_whole(name: str, value: object, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{name} must be a whole number; got {shown(value)}.")
    check_number(name, value, low, 2**53)
