"""Figures as cells: how shares, distances, hours and ratios are written, and the number that goes with them."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.shares import Share, share_of
from gradreg.norms import THREATS, ThreatName
from gradreg.report.layout import NOTHING, Cell

STANDARD_RADII: dict[ThreatName, tuple[float, ...]] = {each.name: each.usual_radii for each in THREATS.values()}
THREAT_SIGNS = {"l1": "l1", "l2": "l2", "linf": "l∞"}


def share(fails: Tensor, note: str = "") -> Cell:
    """The share of images that fail, with its 95 % interval and n in the note."""
    return _written(share_of(fails), note)


def clean_error(evaluation: Evaluation) -> Cell:
    """Over the whole test set if it was run through, else over the images that were attacked."""
    from gradreg.smoothing.intervals import clopper_pearson

    errors, n = clean_errors(evaluation)
    return _written(Share(errors / n, *clopper_pearson(errors, n), n), "")


def clean_share(evaluation: Evaluation) -> float:
    """The same, as a number."""
    errors, n = clean_errors(evaluation)
    return errors / n


def clean_errors(evaluation: Evaluation) -> tuple[int, int]:
    """Images that are misclassified, and of how many: of the whole test set if it was run through."""
    if evaluation.clean is not None:
        return evaluation.clean
    wrong = evaluation.wrong
    if evaluation.settings.topk > 1 and evaluation.threats:
        # Whether the class is among the first k the attacks know: to what is misclassified the distance is 0.
        wrong = next(iter(evaluation.threats.values())).attacked.distance == 0
    return int(wrong.sum()), len(evaluation)


def mean(values: Tensor, missing: str) -> Cell:
    """The mean of the finite ones; the note counts the others by what they are called."""
    values = values.double()
    finite = values[values.isfinite()]
    if not len(finite):
        return Cell("–", None, f"all {len(values)} {missing}")
    left_out = len(values) - len(finite)
    note = f"n = {len(finite)}" + (f", {left_out} {missing} left out" if left_out else "")
    return number(float(finite.mean()), note)


def number(value: float | None, note: str = "", unit: str = "") -> Cell:
    """Three significant digits; nothing to show for None and what is not finite."""
    if value is None or not math.isfinite(value):
        return Cell(NOTHING.text, None, note)
    return Cell(significant(value) + unit, value, note)


def count(value: int) -> Cell:
    """A whole number with its thousands apart."""
    return Cell(f"{value:,}", float(value))


def word(text: str) -> Cell:
    """No figure at all."""
    return Cell(text, None)


def significant(value: float) -> str:
    """Three significant digits without an exponent where that is readable: 1234, 12.3, 0.450, 0.00123, 1.2e-05."""
    if value == 0:
        return "0"
    # Rounded first: 9.996 has as many digits before the point as 10.0.
    magnitude = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    return f"{value:.{max(2 - magnitude, 0)}f}" if -4 <= magnitude < 7 else f"{value:.1e}"


def images(counts: Iterable[int]) -> str:
    """ "n = 1000 images", or the range if models were examined on different numbers of them."""
    distinct = sorted(set(counts)) or [0]
    if len(distinct) == 1:
        return f"n = {distinct[0]} image{'s' if distinct[0] != 1 else ''}"
    return f"n = {distinct[0]} to {distinct[-1]} images"


def within(values: Tensor, radius: float) -> Tensor:
    """values ≤ radius, in the precision of the values: 0.1 in single precision is not above 0.1."""
    return values <= torch.tensor(radius, dtype=values.dtype)


def below(values: Tensor, radius: float) -> Tensor:
    """values < radius, in the precision of the values."""
    return values < torch.tensor(radius, dtype=values.dtype)


def _written(found: Share, note: str) -> Cell:
    interval = f"{100 * found.low:.1f}–{100 * found.high:.1f} %, n = {found.n}"
    return Cell(f"{100 * found.value:.1f} %", found.value, "; ".join(filter(None, (interval, note))))
