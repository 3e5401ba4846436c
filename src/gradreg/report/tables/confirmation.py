"""Our attacks and the reference AutoAttack at the same radius: robust accuracy and cost of each."""

from collections.abc import Iterable

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Confirmed, ThreatRecord
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import images
from gradreg.report.tables.cells import count, number, share
from gradreg.report.tables.layout import Cell, Column, Row, Table


def confirmation(comparison: Comparison) -> Table:
    """Robust accuracy under our attacks, under AutoAttack and under both; no rows where AutoAttack was never run."""
    found = [
        (evaluation, record, confirmed)
        for threat in comparison.threats
        for evaluation, record in comparison.under(threat)
        for confirmed in record.confirmed
    ]
    rows = [
        Row(
            f"{evaluation.subject.name}, {record.symbol} at {radius_name(confirmed.eps)}",
            _cells(record, confirmed),
            models=(evaluation.subject.name,),
            threat=record.threat,
        )
        for evaluation, record, confirmed in found
    ]
    return Table(
        "confirmation",
        "Confirmation by AutoAttack",
        "Robust accuracy under our attacks, under the reference AutoAttack"
        f"{_versions(confirmed for *_, confirmed in found)}, and under both together, over "
        f"{images(len(e) for e, *_ in found)}, with 95 % Clopper-Pearson intervals. Empirical: agreement of two suites "
        "proves nothing.",
        (
            Column(
                "under our attacks", "Fraction of images classified correctly that our attacks did not break.", "high"
            ),
            Column(
                "under AutoAttack", "Fraction of images classified correctly that AutoAttack did not break.", "high"
            ),
            Column("robust accuracy", "Fraction of images that neither broke: the one to quote.", "high"),
            Column("AutoAttack only", "Images that AutoAttack broke and our attacks did not.", "low"),
            Column("our attacks only", "Images that our attacks broke within the radius and AutoAttack did not."),
            Column("our propagations", "Mean forward and backward propagations per image, for all radii.", "low"),
            Column("AutoAttack's propagations", "Mean forward and backward propagations per image, for one radius."),
        ),
        tuple(rows),
    )


def _cells(record: ThreatRecord, confirmed: Confirmed) -> tuple[Cell, ...]:
    attacked, n = record.attacked, len(confirmed.robust)
    return (
        share(record.robust_to_attacks(confirmed.eps)),
        share(confirmed.robust),
        share(record.robust_accuracy(confirmed.eps)),
        count(int(record.missed(confirmed).sum()), f"of {n}"),
        count(int(record.gained(confirmed).sum()), f"of {n}"),
        number(float((attacked.forwards + attacked.backwards).double().mean()), f"n = {n}"),
        number(confirmed.forwards + confirmed.backwards, f"n = {n}"),
    )


def _versions(found: Iterable[Confirmed]) -> str:
    """The versions of AutoAttack, unless all are the standard one."""
    versions = sorted({confirmed.version for confirmed in found})
    return "" if versions in ([], ["standard"]) else f" ({' or '.join(versions)})"
