"""Radii, counts and shares of an evaluation in words, as they are written all over a report."""

from collections.abc import Iterable

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.shares import Share


def ball(symbol: str, radius: float) -> str:
    """ "l∞ 8/255"."""
    return f"{symbol} {radius_name(radius)}"


def images(counts: Iterable[int]) -> str:
    """ "n = 1000 images", or the range if models were evaluated on different numbers of images."""
    distinct = sorted(set(counts)) or [0]
    if len(distinct) == 1:
        return f"n = {distinct[0]} image{'s' if distinct[0] != 1 else ''}"
    return f"n = {distinct[0]} to {distinct[-1]} images"


def share(hits: int, n: int) -> Share:
    """A fraction of n images with its 95 % Clopper-Pearson interval."""
    from gradreg.smoothing.intervals import clopper_pearson

    return Share(hits / n, *clopper_pearson(hits, n), n)


def clean_errors(evaluation: Evaluation) -> tuple[int, int]:
    """Misclassified images, and of how many: of the whole test set if it was evaluated, else of those attacked."""
    return evaluation.clean or (int(evaluation.wrong.sum()), len(evaluation))


def clean_accuracy(evaluation: Evaluation) -> Share:
    """The fraction of images that are classified correctly, of the same images as `clean_errors`."""
    errors, n = clean_errors(evaluation)
    return share(n - errors, n)
