"""Our attacks beside the reference AutoAttack: what each broke at the same radius, and what each cost."""

from collections.abc import Sequence

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Confirmed, Evaluation, Examined
from gradreg.report.layout import Cell, Column, Row, Table
from gradreg.report.numbers import STANDARD_RADII, THREAT_SIGNS, images, number, share


def confirmation(evaluations: Sequence[Evaluation]) -> Table:
    """Robust error by our attacks, by AutoAttack and by either; no rows where AutoAttack was never run."""
    found = [
        (evaluation, examined, confirmed)
        for threat in STANDARD_RADII
        for evaluation in evaluations
        if (examined := evaluation.threats.get(threat)) is not None
        for confirmed in examined.confirmed
    ]
    rows = [
        Row(
            f"{evaluation.subject.name}, {THREAT_SIGNS[examined.threat]} at {radius_name(confirmed.eps)}",
            _cells(examined, confirmed),
        )
        for evaluation, examined, confirmed in found
    ]
    return Table(
        "confirmation",
        "Confirmation by AutoAttack",
        "Share of images that are misclassified or broken within the radius by our attacks, by the reference AutoAttack"
        f"{_versions(found)}, and by either of them, over {images(len(e) for e, _, _ in found)}, with 95 % "
        "Clopper-Pearson intervals for the choice of images. Empirical: that two suites agree makes an error more "
        "likely to be the true one, and proves nothing.",
        (
            Column("attacks", "Share of images broken by our attacks, misclassified ones included.", "low"),
            Column("AutoAttack", "Share of images broken by AutoAttack, misclassified ones included.", "low"),
            Column("worst case", "Share of images broken by either: what should be quoted.", "low"),
            Column("AutoAttack alone", "Images that AutoAttack broke and our attacks did not.", "low"),
            Column("attacks alone", "Images that our attacks broke within the radius and AutoAttack did not."),
            Column("attacks: propagations", "Forward and backward propagations an image, mean, for all radii.", "low"),
            Column("AutoAttack: propagations", "Forward and backward propagations an image, mean, for one radius."),
        ),
        tuple(rows),
    )


def _cells(examined: Examined, confirmed: Confirmed) -> tuple[Cell, ...]:
    attacked, n = examined.attacked, len(confirmed.robust)
    return (
        share(~examined.robust_to_attacks(confirmed.eps)),
        share(~confirmed.robust),
        share(~examined.robust(confirmed.eps)),
        _count(int(examined.missed(confirmed).sum()), n),
        _count(int(examined.gained(confirmed).sum()), n),
        number(float((attacked.forwards + attacked.backwards).double().mean()), f"n = {n}"),
        number(confirmed.forwards + confirmed.backwards, f"n = {n}"),
    )


def _count(images: int, n: int) -> Cell:
    return Cell(str(images), float(images), f"of {n}")


def _versions(found: Sequence[tuple[Evaluation, Examined, Confirmed]]) -> str:
    """The versions of it, where they are not the usual one alone."""
    versions = sorted({confirmed.version for _, _, confirmed in found})
    return "" if versions in ([], ["standard"]) else f" ({' or '.join(versions)})"
