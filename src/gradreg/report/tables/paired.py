"""Two models image by image: which images are robust with one of them only.

On the same images that says more than two intervals side by side: what both models get right or wrong cancels out.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import ball
from gradreg.report.tables.cells import count, number
from gradreg.report.tables.layout import Column, Row, Table


def paired(comparison: Comparison) -> Table:
    """At the main radius, the model of the highest robust accuracy against each of the others."""
    rows = []
    for threat in comparison.threats:
        radius = comparison.main_radius(threat)
        found = comparison.under(threat)
        best = max(found, key=lambda each: each[1].robust_accuracy(radius).value)[0]
        rows += [_row(best, other, threat, radius) for other, _ in found if other is not best]
    return _table(rows)


def pairs(comparison: Comparison, threat: str, radii: Sequence[float]) -> Table:
    """Every two models, at those radii."""
    found = [evaluation for evaluation, _ in comparison.under(threat)]
    return _table([_row(*two, threat, radius) for radius in radii for two in combinations(found, 2)])


def sign_test(one: int, other: int) -> float:
    """The two-sided p of a split at least this uneven between equals (McNemar's test, exact form)."""
    n = one + other
    tail = sum(math.comb(n, k) for k in range(min(one, other) + 1))
    # Whole numbers to the last: either of them alone may be too large for a float.
    return float(min(1.0, 2 * tail / (1 << n)))


def _table(rows: Sequence[Row | None]) -> Table:
    return Table(
        "paired",
        "Paired comparison",
        "Images attacked with both models, by whether they are robust at the radius with both models, one or neither; "
        "misclassified images are not robust. p: exact McNemar (sign) test on the images that are robust with one "
        "model only. It accounts for the choice of images, not for the variance between training runs.",
        (
            Column("first only", "Images that are robust with the model named first only."),
            Column("second only", "Images that are robust with the model named second only."),
            Column("both", "Images that are robust with both."),
            Column("neither", "Images that are robust with neither."),
            Column("p", "Two-sided p-value of the exact McNemar test."),
        ),
        tuple(row for row in rows if row is not None),
    )


def _row(first: Evaluation, second: Evaluation, threat: str, radius: float) -> Row | None:
    """None if they have no image in common."""
    here, there = shared(first, second)
    if first.data.pixels and second.data.pixels:
        same = pixels_of(first, here) == pixels_of(second, there)
        here, there = here[same], there[same]
    if not len(here):
        return None
    a = first.threats[threat].robust(radius)[here]
    b = second.threats[threat].robust(radius)[there]
    one, other, both, neither = (int(marked.sum()) for marked in (a & ~b, b & ~a, a & b, ~a & ~b))
    name = f"{first.subject.name} against {second.subject.name}, {ball(first.threats[threat].symbol, radius)}"
    cells = (*map(count, (one, other, both, neither)), number(sign_test(one, other)))
    return Row(name, cells, models=(first.subject.name, second.subject.name), threat=threat)


def shared(first: Evaluation, second: Evaluation) -> tuple[Tensor, Tensor]:
    """Where the common images, by their position in the data, are in the one and in the other, in the same order."""
    same = (first.index[:, None] == second.index[None]).nonzero()
    return same[:, 0], same[:, 1]


def pixels_of(evaluation: Evaluation, rows: Tensor) -> Tensor:
    """What the pixels of these images are known by, where that was kept."""
    return torch.tensor(evaluation.data.pixels, device="cpu")[rows]
