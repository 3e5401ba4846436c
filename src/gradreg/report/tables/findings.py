"""Tables the paper does not have: robust accuracy with intervals, whether the bounds hold, which attacks win."""

from collections import Counter

from gradreg.bounds.validity import Violations
from gradreg.config.fractions import radius_name
from gradreg.display.numbers import percent
from gradreg.evaluation.record import Attacked
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import images
from gradreg.report.tables.cells import clean_accuracy, count, number, share, word
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table

CLEAN = Column("clean accuracy", "Fraction of unperturbed test images that are classified correctly.", "high")


def robust_accuracy(comparison: Comparison) -> Table:
    """Robust accuracy at the usual radii, with intervals."""
    attacked = [evaluation for evaluation in comparison.evaluations if evaluation.threats]
    radii = [(threat, radius) for threat in comparison.threats for radius in comparison.radii(threat)]
    rows = []
    for evaluation in attacked:
        found = [(evaluation.threats.get(threat), radius) for threat, radius in radii]
        robust = [NOTHING if record is None else share(record.robust_accuracy(radius)) for record, radius in found]
        name = evaluation.subject.name
        rows.append(Row(name, (clean_accuracy(evaluation), *robust), models=(name,)))
    at = {f"{comparison.symbol(threat)} at {radius_name(radius)}": threat for threat, radius in radii}
    return Table(
        "robust-accuracy",
        "Robust accuracy",
        "Fraction of images that are classified correctly and for which no attack found an adversarial image within "
        f"the radius, over {images(map(len, attacked))}, with 95 % Clopper-Pearson intervals. AutoAttack's successes "
        "count where it was run. Empirical: stronger attacks can only lower it.",
        (CLEAN, *(Column(each, f"Robust accuracy, {each}.", "high", threat) for each, threat in at.items())),
        tuple(rows),
    )


def bound_validity(comparison: Comparison) -> Table:
    """How often the attacks violate the bounds."""
    rows = []
    for threat in comparison.threats:
        for evaluation, record in comparison.under(threat):
            for bound, found in (
                ("L-bound", record.lipschitz_validity()),
                ("ω-bound", record.omega_validity()),
                ("calibrated bound", record.calibrated_validity()),
            ):
                if found is not None:
                    model = evaluation.subject.name
                    name = f"{model}, {comparison.symbol(threat)}, {bound}"
                    rows.append(Row(name, _validity(found), models=(model,), threat=threat))
    return Table(
        "bound-validity",
        "Bound validity",
        "Each image's heuristic bounds against the nearest adversarial image found, over the n correctly classified "
        "images. A bound above that distance is violated; stronger attacks may violate more. A calibrated bound is "
        "about our attacks alone and fails by design, on a chosen share of images.",
        (
            Column("violated", "Fraction of images with an adversarial image closer than the bound.", "low"),
            Column("worst ratio", "Largest bound over distance; above 1 is a violation.", "low"),
            Column("tightness", "Mean bound over mean distance; 1 is the best a valid bound can reach.", "high"),
            Column("n", "Correctly classified images."),
            Column("kind", "What the bound claims: a heuristic one rests on an estimate, a calibrated one on attacks."),
        ),
        tuple(rows),
    )


def winners(comparison: Comparison) -> Table:
    """How often each of our attacks found the nearest adversarial image."""
    found = [
        (evaluation, threat, wins(record.attacked))
        for threat in comparison.threats
        for evaluation, record in comparison.under(threat)
    ]
    total = sum((counts for _, _, counts in found), Counter[str]())
    attacks = sorted(set(total) - {"clean", ""}, key=lambda name: (-total[name], name))
    rows = [
        Row(
            f"{evaluation.subject.name}, {comparison.symbol(threat)}",
            tuple(_part(counts[name], len(evaluation)) for name in ("clean", *attacks, "")),
            models=(evaluation.subject.name,),
            threat=threat,
        )
        for evaluation, threat, counts in found
    ]
    return Table(
        "winners",
        "Which attack won",
        "Fraction of images whose nearest adversarial image by our attacks was found by each of them, over "
        f"{images(len(evaluation) for evaluation, _, _ in found)}. Distances are the best over the attacks, per image.",
        (
            Column("misclassified", "Images that need no attack."),
            *(Column(name, f"Images whose nearest adversarial image was found by {name}.") for name in attacks),
            Column("unbroken", "Images for which our attacks found no adversarial image."),
        ),
        tuple(rows),
    )


def wins(attacked: Attacked) -> Counter[str]:
    """Images by winning attack; "clean" are misclassified and "" unbroken."""
    broken = attacked.distance.isfinite().tolist()
    return Counter(name if found else "" for name, found in zip(attacked.winner, broken, strict=True))


def _validity(found: Violations) -> tuple[Cell, ...]:
    violated = NOTHING
    if found.n:
        note = f"{found.unbroken} of {found.n} unbroken" if found.unbroken else f"n = {found.n}"
        violated = Cell(percent(found.rate), found.rate, note)
    return violated, number(found.worst_ratio), number(found.tightness), count(found.n), word(found.kind)


def _part(hits: int, n: int) -> Cell:
    return Cell(percent(hits / n), hits / n, f"{hits} of {n}")
