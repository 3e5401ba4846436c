"""What training and evaluation cost, and which code, machine and settings the numbers come from."""

from gradreg.evaluation.record import ThreatRecord
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import images
from gradreg.report.tables.cells import count, number
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table
from gradreg.report.tables.paper import HOURS, RATIO


def cost(comparison: Comparison) -> Table:
    """Hours of training, propagations and seconds of evaluation."""
    columns = [Column("parameters", "Trainable parameters of the network.", "low"), HOURS, RATIO]
    for threat in comparison.threats:
        asked = (
            ("attacks: propagations", "Mean forward and backward propagations per image."),
            ("attacks: seconds", "Wall time of the attacks on all images."),
            ("bounds: seconds", "Wall time of the regularity estimate and the bounds."),
        )
        columns += [Column(f"{comparison.symbol(threat)} {what}", help_, "low", threat) for what, help_ in asked]
    columns.append(Column("smoothing: seconds", "Wall time of all certificates by randomized smoothing.", "low"))
    rows = [
        Row(
            evaluation.subject.name,
            (
                count(evaluation.subject.parameters),
                number(evaluation.subject.hours),
                number(comparison.cost_ratio(evaluation), unit="×"),
                *(cell for threat in comparison.threats for cell in _evaluation(evaluation.threats.get(threat))),
                number(sum(s.seconds for s in evaluation.smoothing) if evaluation.smoothing else None),
            ),
            models=(evaluation.subject.name,),
        )
        for evaluation in comparison.evaluations
    ]
    return Table(
        "cost",
        "Cost",
        f"Training, and evaluation of {images(map(len, comparison.evaluations))} by our attacks and bounds. Seconds "
        "depend on the machine; propagations do not.",
        tuple(columns),
        tuple(rows),
    )


def origin(comparison: Comparison) -> Table:
    """What every number depends on."""
    asked = (
        ("architecture", "The network.", lambda e: e.subject.architecture),
        ("objective", "The training objective.", lambda e: e.subject.objective),
        ("epochs", "Of training.", lambda e: e.subject.epochs),
        ("images", "Evaluated, a random selection of the test set.", lambda e: f"{len(e)} of {e.data.images}"),
        ("attacks", "The suite of attacks; the nearest adversarial image counts.", lambda e: e.settings.attacks),
        ("regularity", "How L and ω were estimated.", lambda e: e.settings.regularity),
        ("seed", "Of the selection of images, the attacks and the estimates.", lambda e: e.settings.seed),
        ("gradreg", "Version and commit of the evaluation.", lambda e: f"{e.origin.gradreg} {e.origin.commit}".strip()),
        ("torch", "Version of PyTorch.", lambda e: e.origin.torch),
        ("machine", "Of the evaluation.", lambda e: e.origin.machine),
        ("date", "Of the evaluation, in UTC.", lambda e: e.origin.created[:10]),
    )  # fmt: skip
    return Table(
        "origin",
        "Provenance of the numbers",
        f"Test images of {comparison.evaluations[0].data.name}; settings, software and machine of each evaluation.",
        tuple(Column(heading, help_) for heading, help_, _ in asked),
        tuple(
            Row(e.subject.name, tuple(_fact(value(e)) for *_, value in asked), models=(e.subject.name,))
            for e in comparison.evaluations
        ),
    )


def _fact(value: object) -> Cell:
    return NOTHING if value is None or value == "" else Cell(str(value), None)


def _evaluation(record: ThreatRecord | None) -> tuple[Cell, Cell, Cell]:
    if record is None:
        return NOTHING, NOTHING, NOTHING
    attacked = record.attacked
    propagations = (attacked.forwards + attacked.backwards).double().mean()
    bounded = number(record.bounded.seconds) if record.bounded else NOTHING
    return number(float(propagations), f"n = {len(attacked.forwards)}"), number(attacked.seconds), bounded
