"""One record per image, for other programs: as a JSON value that says what its columns are, and for pandas."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from gradreg._version import __version__
from gradreg.extras import need

if TYPE_CHECKING:
    import pandas

SCHEMA = "gradreg.records/1"
"""Raised when a column changes its meaning or goes; a new one may come at any time."""

Type = Literal["integer", "number", "boolean", "string"]


@dataclass(frozen=True)
class Column:
    """A value per image: what it is, in what unit, and all of them."""

    about: str
    values: Tensor | Sequence[Any]
    unit: str = ""
    """As "pixels", where 1 is the width of the range of a pixel value; empty for what has none."""
    missing: str = ""
    """What null means in JSON: where a number is infinite, not a number, or there is none."""

    @property
    def type(self) -> Type:
        """JSON's name of what it holds."""
        if isinstance(self.values, Tensor):
            kind = self.values.dtype
            return "boolean" if kind == torch.bool else "number" if kind.is_floating_point else "integer"
        return "string"

    def plain(self) -> list[Any]:
        """The values as Python has them."""
        values = self.values.detach().cpu() if isinstance(self.values, Tensor) else self.values
        return values.tolist() if isinstance(values, Tensor) else list(values)


@dataclass(frozen=True)
class Records:
    """Facts about all images, and the columns, each with one value per image."""

    kind: str
    facts: Mapping[str, Any]
    columns: Mapping[str, Column]
    versions: Mapping[str, str] = field(default_factory=lambda: {"gradreg": __version__, "torch": torch.__version__})

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold: no number that it has no word for, no tensor."""
        cells = {name: [_spoken(value) for value in column.plain()] for name, column in self.columns.items()}
        rows = zip(*cells.values(), strict=True)
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "versions": dict(self.versions),
            "settings": _spoken(self.facts),
            "columns": {name: _described(column) for name, column in self.columns.items()},
            "images": [dict(zip(cells, row, strict=True)) for row in rows],
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per image; infinite distances stay infinite, and the facts are in `attrs`."""
        need("pandas", "to_pandas")
        pandas = import_module("pandas")
        frame: Any = pandas.DataFrame({name: column.plain() for name, column in self.columns.items()})
        frame.attrs = {"schema": SCHEMA, "kind": self.kind, "versions": dict(self.versions), **self.facts}
        return frame


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `to_dict` returns."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("records.schema.json").read_text("utf-8"))
    return found


class Recorded:
    """A result with one record per image."""

    def records(self) -> Records:
        """Its columns, and what they are about."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Facts, columns and one record per image, as JSON has them; pixels are left out.

        docs/evaluation.md says what each column means; `gradreg.display.records.schema()` is its JSON Schema.
        """
        return self.records().to_dict()

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per image, with the columns of `to_dict`."""
        return self.records().to_pandas()


def _described(column: Column) -> dict[str, str]:
    words = {"type": column.type, "unit": column.unit, "about": column.about, "null": column.missing}
    return {name: word for name, word in words.items() if word}


def _spoken(value: Any) -> Any:
    """JSON's own values; None for a number that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _spoken(part) for key, part in value.items()}
    return [_spoken(part) for part in value] if isinstance(value, tuple | list) else value
