"""Numbers as cells of a table: the text, the value behind it, and its interval and n as a note."""

import math

from torch import Tensor

from gradreg.display.numbers import interval, percent, significant
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.shares import Share, share_of
from gradreg.report.numbers import clean_accuracy as accuracy_of
from gradreg.report.numbers import clean_errors
from gradreg.report.numbers import share as counted
from gradreg.report.tables.layout import NOTHING, Cell


def share(found: Share | Tensor, note: str = "") -> Cell:
    """A fraction of images, or that of the images marked, with its 95 % interval and n in the note."""
    found = share_of(found) if isinstance(found, Tensor) else found
    notes = (f"{interval(found.low, found.high)}, n = {found.n}", note)
    return Cell(percent(found.value), found.value, "; ".join(filter(None, notes)))


def clean_accuracy(evaluation: Evaluation) -> Cell:
    """Over the whole test set if it was evaluated, else over the images that were attacked."""
    return share(accuracy_of(evaluation))


def clean_error(evaluation: Evaluation) -> Cell:
    """Of the same images, for tables in the paper's convention."""
    return share(counted(*clean_errors(evaluation)))


def mean(values: Tensor, missing: str) -> Cell:
    """The mean of the finite ones; the note counts the others by what they are called."""
    values = values.double()
    finite = values[values.isfinite()]
    if not len(finite):
        return Cell(NOTHING.text, None, f"all {len(values)} {missing}")
    left_out = len(values) - len(finite)
    note = f"n = {len(finite)}" + (f", {left_out} {missing} left out" if left_out else "")
    return number(float(finite.mean()), note)


def number(value: float | None, note: str = "", unit: str = "") -> Cell:
    """Three significant digits; a dash for None and what is not finite."""
    if value is None or not math.isfinite(value):
        return Cell(NOTHING.text, None, note)
    return Cell(significant(value) + unit, value, note)


def count(value: int, note: str = "") -> Cell:
    """A whole number with a comma between thousands."""
    return Cell(f"{value:,}", float(value), note)


def word(text: str) -> Cell:
    """Text without a value."""
    return Cell(text, None)
