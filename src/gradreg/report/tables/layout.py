"""A table as data, from which every format and the page are written."""

from dataclasses import dataclass
from typing import Literal

_Better = Literal["low", "high"]


@dataclass(frozen=True)
class Cell:
    """A number as shown, its value at full precision, and a note such as its interval and n."""

    text: str
    value: float | None
    """What to sort by; fractions are between 0 and 1. None where `text` is "–" or a word."""
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A heading, a sentence that explains it, and whether low or high values are better."""

    heading: str
    help: str
    better: _Better | None = None
    threat: str = ""
    """The norm that it is about, by name; empty for none or several."""


@dataclass(frozen=True)
class Row:
    """One cell per column, under the row's name."""

    name: str
    cells: tuple[Cell, ...]
    quoted: bool = False
    """The numbers are the paper's, not measured here."""
    models: tuple[str, ...] = ()
    """The models that it is about."""
    threat: str = ""
    """The norm that it is about, by name; empty for none or several."""


@dataclass(frozen=True)
class Table:
    """Rows under headings; the column of the rows' names is not among `columns`."""

    key: str
    title: str
    caption: str
    """What is measured on how many images, and what kind of claim it is. Only smoothing's is called certified."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    of: str = "model"
    """What a row is about: the heading of the column of names."""


NOTHING = Cell("–", None)
