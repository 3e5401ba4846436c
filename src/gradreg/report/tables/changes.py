"""Two evaluations of a model: how accuracy and distances changed, on which images, and which settings differ."""

import math
from collections.abc import Sequence

import torch

from gradreg.display.numbers import distance_name, percent
from gradreg.report.tables.cells import count, number, word
from gradreg.report.tables.difference import Change, Difference
from gradreg.report.tables.layout import Cell, Column, Row, Table
from gradreg.report.tables.paired import sign_test


def changes(difference: Difference, most: int | None = None) -> list[Table]:
    """Every table that has rows; of the images that changed at most so many, the largest changes first."""
    found = [_accuracy(difference), _distances(difference), _images(difference, most), _settings(difference)]
    return [table for table in found if table.rows]


def _accuracy(difference: Difference) -> Table:
    n = len(difference.rows[0])
    return Table(
        "changes",
        "Accuracy before and after",
        f"Over the n = {n} images that both evaluations looked at. p: exact McNemar test on the images that are right "
        "only before (lost) or only after (gained); corrected by Holm for all rows together. It accounts for the "
        "choice of images, not for the variance between training runs.",
        (
            Column("before", "Accuracy in the evaluation named first.", "high"),
            Column("after", "Accuracy in the evaluation named second.", "high"),
            Column("change", "After minus before, in percentage points."),
            Column("lost", "Images that were right before and are not after.", "low"),
            Column("gained", "Images that were not right before and are after.", "high"),
            Column("p", "Two-sided p-value of the exact McNemar test."),
            Column("p, corrected", "By Holm, for all rows of this table."),
            Column("more than chance", "Whether the corrected p-value is at most 0.05."),
        ),
        tuple(Row(each.where, _cells(each), threat=each.threat) for each in difference.changes),
        of="accuracy",
    )


def _cells(change: Change) -> tuple[Cell, ...]:
    value = change.after - change.before
    return (
        Cell(percent(change.before), change.before),
        Cell(percent(change.after), change.after),
        Cell(f"{100 * value:+.1f}".replace("-", "−"), value),
        count(change.lost),
        count(change.gained),
        number(change.p),
        number(change.corrected),
        word("yes" if change.beyond_chance else "no"),
    )


def _distances(difference: Difference) -> Table:
    rows = []
    for threat in difference.threats:
        before, after = difference.distances(threat)
        nearer, farther = difference.moved(threat)
        both = (before > 0) & before.isfinite() & (after > 0) & after.isfinite()
        ratio = float((after[both] / before[both]).median()) if bool(both.any()) else math.nan
        unbroken = [int((~each.isfinite()).sum()) for each in (before, after)]
        cells = (count(nearer), count(farther), count(len(before) - nearer - farther), number(ratio, unit="×"))
        rows.append(
            Row(
                difference.comparison.symbol(threat),
                (*cells, word(f"{unbroken[0]} → {unbroken[1]}"), number(sign_test(nearer, farther))),
                threat=threat,
            )
        )
    return Table(
        "changed-distances",
        "Distances before and after",
        f"The nearest adversarial image of each of n = {len(difference.rows[0])} images. Of one model, a stronger "
        "attack can only bring it nearer. p: exact sign test on the images whose distance changed by more than "
        "rounding.",
        (
            Column("nearer", "Images whose adversarial image is nearer after."),
            Column("farther", "Images whose adversarial image is farther after."),
            Column("same", "Images whose distance is the same, up to rounding."),
            Column("median ratio", "Distance after over distance before, of images broken in both."),
            Column("unbroken", "Images for which no adversarial image was found, before and after."),
            Column("p", "Two-sided p-value of the exact sign test; not corrected."),
        ),
        tuple(rows),
        of="threat",
    )


def _images(difference: Difference, most: int | None) -> Table:
    """Images whose class changed, or that were lost or gained at the radius that models are compared at."""
    comparison, (here, there) = difference.comparison, difference.rows
    before, after = difference.before, difference.after
    clean = before.prediction[here] != after.prediction[there]
    changed, spread = clean.clone(), clean.double()
    for threat in difference.threats:
        first, second = difference.robust(threat, comparison.main_radius(threat))
        old, new = difference.distances(threat)
        gap = torch.where(old == new, 0.0, (new - old).abs() / comparison.main_radius(threat)).clamp(max=1e9)
        changed |= first != second
        spread = spread.maximum(gap)
    found = changed.nonzero().flatten()
    found = found[spread[found].argsort(descending=True, stable=True)]
    shown = found if most is None else found[:most]
    names = before.data.classes
    rows = []
    for i in shown.tolist():
        row, other = int(here[i]), int(there[i])
        answers = [names[int(e.prediction[r])] for e, r in ((before, row), (after, other))]
        cells = [word(names[int(before.label[row])]), word(" → ".join(dict.fromkeys(answers)))]
        cells += [_moved(difference, threat, i) for threat in difference.threats]
        rows.append(Row(f"#{int(before.index[row])}", tuple(cells)))
    left = len(found) - len(shown)
    return Table(
        "changed-images",
        "Images that changed",
        f"{len(found)} of {len(clean)} images have another class, or were lost or gained at the radius that models are "
        f"compared at, the largest change first{f'; {left} more are in the CSV and JSON reports' if left else ''}. "
        "Distances are of the nearest adversarial image found; 0: misclassified.",
        (
            Column("label", "The right class."),
            Column("class", "What the model says, before → after where it differs."),
            *(
                Column(f"{comparison.symbol(threat)} distance", "Before → after.", threat=threat)
                for threat in difference.threats
            ),
        ),
        tuple(rows),
        of="image",
    )


def _moved(difference: Difference, threat: str, i: int) -> Cell:
    values = [float(each[i]) for each in difference.distances(threat)]
    in_255 = difference.comparison.in_255(threat)
    texts = [distance_name(threat, value, in_255) if math.isfinite(value) else "unbroken" for value in values]
    change = values[1] - values[0] if all(map(math.isfinite, values)) else None
    return Cell(" → ".join(texts), change)


def _settings(difference: Difference) -> Table:
    found: Sequence[tuple[str, str, str]] = difference.settings()
    return Table(
        "changed-settings",
        "Settings that differ",
        "Options of the evaluations, code, machine and training; what is not listed is the same.",
        (
            Column("before", "In the evaluation named first."),
            Column("after", "In the evaluation named second."),
        ),
        tuple(Row(name, (word(before), word(after))) for name, before, after in found),
        of="setting",
    )
