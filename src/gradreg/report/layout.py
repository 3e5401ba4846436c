"""A table as data: what every format, and the page, is made from."""

from dataclasses import dataclass
from typing import Literal

Better = Literal["low", "high"]


@dataclass(frozen=True)
class Cell:
    """A figure as shown, the number behind it, and what a careful reader asks next: its interval, its n."""

    text: str
    value: float | None
    """What to sort by, at full precision; shares are between 0 and 1. None where `text` is "–" or a word."""
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A heading, a sentence that explains it, and whether small or large figures are the good ones."""

    heading: str
    help: str
    better: Better | None = None


@dataclass(frozen=True)
class Row:
    """A model's figures, one cell a column."""

    name: str
    cells: tuple[Cell, ...]
    quoted: bool = False
    """The figures are the paper's, not measured here."""


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
