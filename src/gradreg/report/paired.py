"""Two models image by image: which images withstand the attacks with one of them only.

On the same images that says more than two intervals side by side: what both models get right or wrong cancels out.
"""

import math
from collections.abc import Sequence
from itertools import combinations

from torch import Tensor

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Evaluation
from gradreg.norms import ThreatName
from gradreg.report.layout import Column, Row, Table
from gradreg.report.numbers import STANDARD_RADII, THREAT_SIGNS, count, number


def paired(evaluations: Sequence[Evaluation]) -> Table:
    """At the second of the usual radii, the model that most images withstand with against each of the others."""
    rows = []
    for threat, (_, radius, *_) in STANDARD_RADII.items():
        examined = [each for each in evaluations if threat in each.threats]
        best = max(examined, key=lambda each: _share(each, threat, radius), default=None)
        rows += [_row(best, other, threat, radius) for other in examined if best is not None and other is not best]
    return _table(rows)


def pairs(evaluations: Sequence[Evaluation], threat: ThreatName, radii: Sequence[float]) -> Table:
    """Every two models, at those radii."""
    examined = [each for each in evaluations if threat in each.threats]
    return _table([_row(*two, threat, radius) for radius in radii for two in combinations(examined, 2)])


def sign_test(one: int, other: int) -> float:
    """The two-sided p of so uneven a split, or a more uneven one, between equals (McNemar's test, exact form)."""
    n = one + other
    tail = sum(math.comb(n, k) for k in range(min(one, other) + 1))
    # Whole numbers to the last: either of them alone may be too large for a float.
    return float(min(1.0, 2 * tail / (1 << n)))


def _table(rows: Sequence[Row | None]) -> Table:
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
            Column("p", "Small: the difference is not the choice of images."),
        ),
        tuple(row for row in rows if row is not None),
    )


def _row(first: Evaluation, second: Evaluation, threat: ThreatName, radius: float) -> Row | None:
    """None if they have no image in common."""
    here, there = _shared(first.index, second.index)
    if not len(here):
        return None
    a = first.threats[threat].robust(radius)[here]
    b = second.threats[threat].robust(radius)[there]
    one, other, both, neither = (int(marked.sum()) for marked in (a & ~b, b & ~a, a & b, ~a & ~b))
    name = f"{first.subject.name} against {second.subject.name}, {THREAT_SIGNS[threat]} {radius_name(radius)}"
    return Row(name, (*map(count, (one, other, both, neither)), number(sign_test(one, other))))


def _share(evaluation: Evaluation, threat: ThreatName, radius: float) -> float:
    return float(evaluation.threats[threat].robust(radius).double().mean())


def _shared(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Where the images that both have stand in the one and in the other, in the same order."""
    same = (first[:, None] == second[None]).nonzero()
    return same[:, 0], same[:, 1]
