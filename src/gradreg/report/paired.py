"""Two models image by image: which images withstand the attacks with one of them only.

On the same images that says more than two intervals side by side: what both models get right or wrong cancels out.
"""

import math
from collections.abc import Sequence
from itertools import combinations

from torch import Tensor

from gradreg.evaluation.record import STANDARD_RADII, Evaluation
from gradreg.norms import ThreatName
from gradreg.report.layout import Column, Row, Table
from gradreg.report.numbers import THREAT_SIGNS, count, number, radius_name


def paired(evaluations: Sequence[Evaluation]) -> Table:
    """Every two models at the usual radii."""
    radii = [(threat, radius) for threat, usual in STANDARD_RADII.items() for radius in usual]
    return pairs(evaluations, radii)


def pairs(evaluations: Sequence[Evaluation], radii: Sequence[tuple[ThreatName, float]]) -> Table:
    """Every two models that were attacked on the same images, at those radii."""
    rows = [
        row
        for threat, radius in radii
        for first, second in combinations([each for each in evaluations if threat in each.threats], 2)
        if (row := _row(first, second, threat, radius)) is not None
    ]
    return Table(
        "paired",
        "Image by image",
        "Of the images that two models were both attacked on, how many withstand within the radius with both, with one "
        "alone or with neither; misclassified images withstand nothing. p: how often so uneven a split, or a more "
        "uneven one, of the images that tell the models apart would come about if neither were the better one (exact "
        "sign test). It is about the choice of images, not about the luck of a training run.",
        (
            Column("first alone", "Images that withstand with the model named first only."),
            Column("second alone", "Images that withstand with the model named second only."),
            Column("both", "Images that withstand with both."),
            Column("neither", "Images that withstand with neither."),
            Column("p", "Small: the difference is not the choice of images.", "low"),
        ),
        tuple(rows),
    )


def sign_test(one: int, other: int) -> float:
    """The two-sided p of so uneven a split, or a more uneven one, between equals (McNemar's test, exact form)."""
    n = one + other
    tail = sum(math.comb(n, k) for k in range(min(one, other) + 1))
    # Whole numbers to the last: either of them alone may be too large for a float.
    return float(min(1.0, 2 * tail / (1 << n)))


def _row(first: Evaluation, second: Evaluation, threat: ThreatName, radius: float) -> Row | None:
    here, there = _shared(first.index, second.index)
    if not len(here):
        return None
    a = first.threats[threat].robust(radius)[here]
    b = second.threats[threat].robust(radius)[there]
    one, other, both, neither = (int(marked.sum()) for marked in (a & ~b, b & ~a, a & b, ~a & ~b))
    name = f"{first.subject.name} against {second.subject.name}, {THREAT_SIGNS[threat]} {radius_name(radius)}"
    return Row(name, (*map(count, (one, other, both, neither)), number(sign_test(one, other))))


def _shared(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Where the images that both have stand in the one and in the other, in the same order."""
    same = (first[:, None] == second[None]).nonzero()
    return same[:, 0], same[:, 1]
