"""What calibrated bounds say: robust accuracy that holds against the attacks but for a chosen share of images."""

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Calibrated, Evaluation, ThreatRecord
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import images
from gradreg.report.tables.cells import mean, number, share
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table
from gradreg.report.tables.paper import below


def calibrated(comparison: Comparison) -> Table:
    """Accuracy at the usual radii, in one column per radius, and the bounds' mean beside that of the distances."""
    found = [
        (evaluation, record, record.bounded.calibrated)
        for threat in comparison.threats
        for evaluation, record in comparison.under(threat)
        if record.bounded is not None and record.bounded.calibrated is not None
    ]
    radii = [(threat, radius) for threat in comparison.threats for radius in comparison.radii(threat)]
    shown = [each for each in radii if each[0] in {record.threat for _, record, _ in found}]
    rows = [
        Row(
            f"{evaluation.subject.name}, {record.symbol}",
            (
                number(facts.alpha),
                *(_accuracy(record, facts, threat, radius) for threat, radius in shown),
                mean(facts.bound, "without a bound"),
                mean(record.attacked.distance, "unbroken"),
                _violated(record),
            ),
            models=(evaluation.subject.name,),
            threat=record.threat,
        )
        for evaluation, record, facts in found
    ]
    return Table(
        "calibrated",
        "Calibrated bounds",
        "Fraction of images that are classified correctly and whose calibrated bound is at least ε, over "
        f"{images(_images(found))}. A calibrated bound is below what the attacks of this evaluation find on all but a "
        "share α of images of the same distribution: each half of the images was calibrated by the other half. It says "
        "nothing about other attacks or other images, and is not a certificate.",
        (
            Column("α", "Share of images on which the bound may fail."),
            *(
                Column(
                    f"{comparison.symbol(threat)} accuracy at {radius_name(radius)}",
                    "By the calibrated bound.",
                    "high",
                    threat,
                )
                for threat, radius in shown
            ),
            Column("mean bound", "Misclassified images count 0.", "high"),
            Column("mean distance", "Of the nearest adversarial image that the attacks found.", "high"),
            Column("violated", "Fraction of correctly classified images broken within the bound; expected: α."),
        ),
        tuple(rows),
    )


def _accuracy(record: ThreatRecord, facts: Calibrated, threat: str, radius: float) -> Cell:
    return share(~below(facts.bound, radius)) if record.threat == threat else NOTHING


def _violated(record: ThreatRecord) -> Cell:
    found = record.calibrated_validity()
    return NOTHING if found is None or not found.n else Cell(f"{100 * found.rate:.1f} %", found.rate, f"n = {found.n}")


def _images(found: list[tuple[Evaluation, ThreatRecord, Calibrated]]) -> list[int]:
    return [len(evaluation) for evaluation, _, _ in found]
