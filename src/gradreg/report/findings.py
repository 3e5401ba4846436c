"""Tables the paper does not have: errors with intervals, whether bounds hold, which attacks win, what it all cost."""

from collections import Counter
from collections.abc import Sequence

from gradreg.bounds.validity import Violations
from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Attacked, Evaluation, Examined
from gradreg.norms import ThreatName
from gradreg.report.compare import cost_ratio
from gradreg.report.layout import NOTHING, Cell, Column, Row, Table
from gradreg.report.numbers import (
    STANDARD_RADII,
    THREAT_SIGNS,
    clean_error,
    count,
    images,
    number,
    share,
    within,
    word,
)
from gradreg.report.paper_tables import CLEAN, HOURS, RATIO


def robust_error(evaluations: Sequence[Evaluation]) -> Table:
    """Empirical errors at the usual radii, with intervals."""
    examined = [evaluation for evaluation in evaluations if evaluation.threats]
    radii = [(threat, radius) for threat in _threats(evaluations) for radius in STANDARD_RADII[threat]]
    rows = [
        Row(
            evaluation.subject.name,
            (clean_error(evaluation), *(_error(evaluation, threat, radius) for threat, radius in radii)),
        )
        for evaluation in examined
    ]
    return Table(
        "robust-error",
        "Robust error",
        "Share of images that are misclassified or for which the attacks found an adversarial image within the radius, "
        f"over {images(map(len, examined))}, with 95 % Clopper-Pearson intervals for the choice of images. Empirical: "
        "a stronger attack can only raise it.",
        (
            CLEAN,
            *(
                Column(
                    f"{THREAT_SIGNS[threat]} at {radius_name(radius)}",
                    f"Share of images broken within {THREAT_SIGNS[threat]} distance {radius_name(radius)}.",
                    "low",
                )
                for threat, radius in radii
            ),
        ),
        tuple(rows),
    )


def bound_validity(evaluations: Sequence[Evaluation]) -> Table:
    """How both bounds fared against the attacks."""
    rows = []
    for threat in _threats(evaluations):
        for evaluation in evaluations:
            examined = evaluation.threats.get(threat)
            if examined is None or examined.bounded is None:
                continue
            name = f"{evaluation.subject.name}, {THREAT_SIGNS[threat]}"
            for bound, fared in (("L", examined.lipschitz_validity()), ("ω", examined.omega_validity())):
                if fared is not None:
                    rows.append(Row(f"{name}, {bound}-bound", _validity(fared)))
    return Table(
        "bound-validity",
        "Do the bounds hold?",
        "Each image's bound against the nearest adversarial image that was found, over the n images that are correctly "
        "classified. A bound above that distance is violated. Heuristic bounds may be; those not violated here may "
        "still be by a stronger attack.",
        (
            Column("violated", "Share of images with an adversarial image closer than the bound.", "low"),
            Column("worst ratio", "Largest bound over distance; above 1 it is a violation.", "low"),
            Column("tightness", "Mean bound over mean distance; 1 would be as close as a bound can be.", "high"),
            Column("n", "Correctly classified images."),
            Column("kind", "What the bound is worth: a heuristic rests on an estimate."),
        ),
        tuple(rows),
    )


def winners(evaluations: Sequence[Evaluation]) -> Table:
    """Which attack found the nearest adversarial image how often."""
    found = [(e, t, _won(e.threats[t].attacked)) for t in _threats(evaluations) for e in evaluations if t in e.threats]
    total = sum((counts for _, _, counts in found), Counter[str]())
    attacks = sorted(set(total) - {"clean", ""}, key=lambda name: (-total[name], name))
    columns = [
        Column("misclassified", "Images that need no attack."),
        *(Column(name, f"Images whose nearest adversarial image {name} found.") for name in attacks),
        Column("unbroken", "Images for which no attack found anything."),
    ]
    rows = [
        Row(
            f"{evaluation.subject.name}, {THREAT_SIGNS[threat]}",
            tuple(_part(counts[name], len(evaluation)) for name in ("clean", *attacks, "")),
        )
        for evaluation, threat, counts in found
    ]
    return Table(
        "winners",
        "Which attack won",
        "Share of images whose nearest adversarial image each attack found, over "
        f"{images(len(evaluation) for evaluation, _, _ in found)}. Empirical; the paper also takes the best "
        "of several attacks for each image.",
        tuple(columns),
        tuple(rows),
    )


def cost(evaluations: Sequence[Evaluation]) -> Table:
    """What training and examination cost."""
    threats = _threats(evaluations)
    columns = [Column("parameters", "Trainable numbers of the network.", "low"), HOURS, RATIO]
    for sign in (THREAT_SIGNS[threat] for threat in threats):
        columns += [
            Column(f"{sign} attacks: propagations", "Forward and backward propagations an image, mean.", "low"),
            Column(f"{sign} attacks: seconds", "Wall time of the attacks on all images.", "low"),
            Column(f"{sign} bounds: seconds", "Wall time of estimating the regularity and bounding all images.", "low"),
        ]
    columns.append(Column("smoothing: seconds", "Wall time of all certificates of the smoothed classifier.", "low"))
    rows = [
        Row(
            evaluation.subject.name,
            (
                count(evaluation.subject.parameters),
                number(evaluation.subject.hours),
                number(cost_ratio(evaluation, evaluations), unit="×"),
                *(cell for threat in threats for cell in _examination(evaluation.threats.get(threat))),
                number(sum(s.seconds for s in evaluation.smoothing) if evaluation.smoothing else None),
            ),
        )
        for evaluation in evaluations
    ]
    return Table(
        "cost",
        "What it cost",
        f"Training, and examining {images(map(len, evaluations))}. Seconds depend on the machine; propagations do not.",
        tuple(columns),
        tuple(rows),
    )


def origin(evaluations: Sequence[Evaluation]) -> Table:
    """What every figure depends on."""
    asked = (
        ("architecture", "The network.", lambda e: e.subject.architecture),
        ("objective", "What training minimised.", lambda e: e.subject.objective),
        ("epochs", "Of training.", lambda e: e.subject.epochs),
        ("images", "Examined, chosen at random from the test set.", lambda e: f"{len(e)} of {e.data.images}"),
        ("attacks", "The suite of attacks; the nearest adversarial image of all counts.", lambda e: e.settings.attacks),
        ("regularity", "How L and ω were estimated.", lambda e: e.settings.regularity),
        ("seed", "Of the choice of images, the attacks and the estimates.", lambda e: e.settings.seed),
        ("gradreg", "Version and commit that examined it.", lambda e: f"{e.origin.gradreg} {e.origin.commit}".strip()),
        ("torch", "Version of PyTorch.", lambda e: e.origin.torch),
        ("machine", "What examined it.", lambda e: e.origin.machine),
        ("date", "When, in UTC.", lambda e: e.origin.created[:10]),
    )  # fmt: skip
    return Table(
        "origin",
        "Where the figures come from",
        f"Test images of {evaluations[0].data.name}, and what else every figure above depends on.",
        tuple(Column(heading, help_) for heading, help_, _ in asked),
        tuple(Row(e.subject.name, tuple(_fact(say(e)) for _, _, say in asked)) for e in evaluations),
    )


def _fact(value: object) -> Cell:
    return NOTHING if value is None or value == "" else Cell(str(value), None)


def _threats(evaluations: Sequence[Evaluation]) -> list[ThreatName]:
    return [threat for threat in STANDARD_RADII if any(threat in evaluation.threats for evaluation in evaluations)]


def _error(evaluation: Evaluation, threat: str, radius: float) -> Cell:
    examined = evaluation.threats.get(threat)
    return NOTHING if examined is None else share(within(examined.attacked.distance, radius))


def _validity(fared: Violations) -> tuple[Cell, ...]:
    violated = NOTHING
    if fared.n:
        unbroken = f"{fared.unbroken} of {fared.n} unbroken" if fared.unbroken else f"n = {fared.n}"
        violated = Cell(f"{100 * fared.rate:.1f} %", fared.rate, unbroken)
    return violated, number(fared.worst_ratio), number(fared.tightness), count(fared.n), word(fared.kind)


def _won(attacked: Attacked) -> Counter[str]:
    broken = attacked.distance.isfinite().tolist()
    return Counter(name if found else "" for name, found in zip(attacked.winner, broken, strict=True))


def _part(hits: int, n: int) -> Cell:
    return Cell(f"{100 * hits / n:.1f} %", hits / n, f"{hits} of {n}")


def _examination(examined: Examined | None) -> tuple[Cell, Cell, Cell]:
    if examined is None:
        return NOTHING, NOTHING, NOTHING
    attacked = examined.attacked
    propagations = (attacked.forwards + attacked.backwards).double().mean()
    bounded = number(examined.bounded.seconds) if examined.bounded else NOTHING
    return number(float(propagations), f"n = {len(attacked.forwards)}"), number(attacked.seconds), bounded
