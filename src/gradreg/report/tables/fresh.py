"""Randomised models under the fixed draws that were attacked and under fresh ones that no attack saw."""

from statistics import mean

from torch import Tensor

from gradreg.config.fractions import radius_name
from gradreg.display.numbers import percent
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.evaluation.redrawn import Redrawn
from gradreg.evaluation.shares import share_of
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import images
from gradreg.report.tables.cells import share
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table


def redrawn(comparison: Comparison, threat: str) -> list[tuple[Evaluation, ThreatRecord, Redrawn]]:
    """The randomised models of a comparison in a threat, with what fresh draws make of them."""
    return [
        (evaluation, record, found)
        for evaluation, record in comparison.under(threat)
        if (found := Redrawn.of(evaluation.fresh, record)) is not None
    ]


def fresh_draws(comparison: Comparison) -> Table:
    """Accuracy at 0 and at the usual radii, a row for each; no rows without randomised models."""
    found = [each for threat in comparison.threats for each in redrawn(comparison, threat)]
    # Unperturbed images are the same in every threat, so each model has them once.
    clean = {evaluation.subject.name: (record, again) for evaluation, record, again in found}
    rows = [Row(f"{name}, clean", _cells(*each, 0.0), models=(name,)) for name, each in clean.items()]
    rows += [
        Row(
            f"{evaluation.subject.name}, {record.symbol} at {radius_name(radius)}",
            _cells(record, again, radius),
            models=(evaluation.subject.name,),
            threat=record.threat,
        )
        for evaluation, record, again in found
        for radius in comparison.radii(record.threat)
    ]
    return Table(
        "fresh-draws",
        "Randomised models under fresh draws",
        f"Attacks saw the average of {_draws(found)} fixed draws, and robust accuracy is about it. Here each image and "
        "the adversarial image found for it were asked again under as many fresh draws of their own, over "
        f"{images(len(each) for each, *_ in found)}, with 95 % Clopper-Pearson intervals. An adversarial image lies "
        "just beyond the boundary of the average that was attacked, so other draws, however many, put about half of "
        "them back. That is not robustness: images a little farther away would hold.",
        (
            Column("fixed draws", "Robust accuracy under our attacks, by the average that was attacked."),
            Column(
                "fresh draws",
                "Fraction of images of which neither the image nor its adversarial image within the radius is "
                "misclassified by the average of as many fresh draws.",
            ),
            Column("one draw", "The same by a single fresh draw: the mean over images and draws."),
            Column(
                "still misclassified", "Of the adversarial images within the radius, by the average of fresh draws."
            ),
            Column("by one draw", "The share of single fresh draws that misclassify these adversarial images."),
        ),
        tuple(rows),
    )


def _cells(record: ThreatRecord, again: Redrawn, radius: float) -> tuple[Cell, ...]:
    within = again.found & ~record.robust_to_attacks(radius)
    single = again.single(radius)
    return (
        share(record.robust_to_attacks(radius)),
        share(again.robust(radius)),
        Cell(percent(single), single, f"{again.clean.draws} draws each"),
        _still(again.adversarial.wrong[within]),
        _mean(again.adversarial.share[within].double().tolist()),
    )


def _still(wrong: Tensor) -> Cell:
    if not len(wrong):
        return NOTHING
    return Cell(percent(share_of(wrong).value), share_of(wrong).value, f"{int(wrong.sum())} of {len(wrong)}")


def _mean(shares: list[float]) -> Cell:
    value = mean(shares) if shares else None
    return NOTHING if value is None else Cell(percent(value), value)


def _draws(found: list[tuple[Evaluation, ThreatRecord, Redrawn]]) -> str:
    return " or ".join(map(str, sorted({again.clean.draws for *_, again in found}))) or "some"
