"""The columns of the paper's Tables 1 to 5, for our own evaluations.

Conventions: the empirical error at ε counts images with a distance ≤ ε, the ω-bound error at ε those with a bound < ε,
the certified error at r those without the right class and a radius ≥ r. Misclassified images have distance and bound 0.
"""

from collections.abc import Sequence

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Bounded, Evaluation, Examined, Smoothed
from gradreg.report.compare import cost_ratio
from gradreg.report.layout import NOTHING, Cell, Column, Row, Table
from gradreg.report.numbers import (
    STANDARD_RADII,
    below,
    clean_error,
    images,
    mean,
    number,
    share,
    within,
)

LINF_RADII = STANDARD_RADII["linf"]
CERTIFIED_RADII = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
OMEGA_RADII = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)

CLEAN = Column("clean error", "Share of unperturbed test images that are misclassified.", "low")
HOURS = Column("training hours", "Wall time of the training run.", "low")
RATIO = Column(
    "× undefended",
    "Training hours over those of the undefended model of the same architecture and number of epochs in this report.",
    "low",
)


def table_1(evaluations: Sequence[Evaluation]) -> Table:
    """Robustness in l∞."""
    found = _with_threat(evaluations, "linf")
    rows = [
        Row(
            evaluation.subject.name,
            (
                clean_error(evaluation),
                *(omega_error(examined.bounded, radius) for radius in LINF_RADII),
                *(share(within(examined.attacked.distance, radius)) for radius in LINF_RADII),
                number(evaluation.subject.hours),
                number(cost_ratio(evaluation, evaluations), unit="×"),
            ),
        )
        for evaluation, examined in found
    ]
    bound_help = "Share of images whose ω-bound is below ε: a heuristic that an attack may refute."
    attack_help = (
        "Share of images for which the attacks found an adversarial image within ε, misclassified ones included."
    )
    return Table(
        "table-1",
        "Table 1: robustness in l∞",
        f"Clean error, and error at the l∞ radii ε of the paper, over {_n(found)}. The ω-bound is heuristic: an "
        "estimate of what no attack should exceed. The empirical error is what the attacks achieved; a stronger "
        f"attack can only raise it.{_top_k(evaluations)}",
        (
            CLEAN,
            *(Column(f"ω-bound error at {radius_name(r)}", bound_help, "low") for r in LINF_RADII),
            *(Column(f"empirical error at {radius_name(r)}", attack_help, "low") for r in LINF_RADII),
            HOURS,
            RATIO,
        ),
        tuple(rows),
    )


def table_2(evaluations: Sequence[Evaluation]) -> Table:
    """Mean distances in l2."""
    found = _with_threat(evaluations, "l2")
    rows = [
        Row(
            evaluation.subject.name,
            (
                clean_error(evaluation),
                mean(examined.bounded.lipschitz_bound, "without a bound") if examined.bounded else NOTHING,
                mean(examined.bounded.omega_bound, "without a bound") if examined.bounded else NOTHING,
                mean(examined.attacked.distance, "unbroken"),
                number(evaluation.subject.hours),
            ),
        )
        for evaluation, examined in found
    ]
    return Table(
        "table-2",
        "Table 2: mean adversarial distance in l2",
        f"Means over {_n(found)}, to which misclassified ones contribute 0. Images that no attack broke have no "
        "distance; the mean is over the others then, and a note counts them. Both bounds are heuristic."
        f"{_top_k(evaluations)}",
        (
            CLEAN,
            Column("L-bound", "Mean of gap/L, eq. (bound 1) of Prop. 2.2 with an estimated L: heuristic.", "high"),
            Column("ω-bound", "Mean of the bound by the modulus of continuity, Prop. 2.2: heuristic.", "high"),
            Column("empirical", "Mean distance of the nearest adversarial images that were found.", "high"),
            HOURS,
        ),
        tuple(rows),
    )


def table_3(evaluations: Sequence[Evaluation]) -> Table:
    """Regularity in l2."""
    found = [(e, x.bounded) for e, x in _with_threat(evaluations, "l2") if x.bounded]
    rows = [
        Row(
            evaluation.subject.name,
            (
                number(float(bounded.gradient_norm.double().mean()), f"n = {len(bounded.gradient_norm)}"),
                number(float(bounded.gradient_norm.max()), f"n = {len(bounded.gradient_norm)}"),
                _omega(bounded, 0.5),
                _omega(bounded, 1.0),
            ),
        )
        for evaluation, bounded in found
    ]
    norm = "gradient of the margin of the softmax probabilities"
    return Table(
        "table-3",
        "Table 3: regularity in l2",
        f"The l2 norm of the {norm} over {images(len(e) for e, _ in found)}, and its modulus of continuity ω(ε) as "
        f"estimated by {_methods([b for _, b in found])}: heuristic. The largest norm speaks of the tail and grows "
        "with n. Between the radii of its grid ω is taken at the next one, which a note names.",
        (
            Column("mean ‖∇ℓ‖", f"Mean norm of the {norm}.", "low"),
            Column("max ‖∇ℓ‖", f"Largest norm of the {norm}.", "low"),
            Column("ω(0.5)", "How much the loss can exceed its linear model within distance 0.5.", "low"),
            Column("ω(1.0)", "How much the loss can exceed its linear model within distance 1.", "low"),
        ),
        tuple(rows),
    )


def table_4(evaluations: Sequence[Evaluation]) -> Table:
    """Certificates by randomized smoothing."""
    found = [(evaluation, smoothed) for evaluation in evaluations for smoothed in evaluation.smoothing]
    rows = [
        Row(
            f"{evaluation.subject.name}, σ = {smoothed.sigma:g}",
            tuple(_certified_error(evaluation, smoothed, radius) for radius in CERTIFIED_RADII),
        )
        for evaluation, smoothed in found
    ]
    alphas = sorted({smoothed.alpha for _, smoothed in found})
    risk = " or ".join(f"{alpha:g}" for alpha in alphas)
    return Table(
        "table-4",
        "Table 4: certified error of the smoothed classifier",
        "Share of images that the smoothed classifier does not get right with a certified l2 radius of at least r, "
        f"over {images(len(e) for e, _ in found)}. Probabilistic: each certificate is wrong with probability {risk} at "
        "most, and it is about the classifier under Gaussian noise σ, not about the network by itself.",
        tuple(Column(f"r = {r:g}", f"Certified error at l2 radius {r:g}.", "low") for r in CERTIFIED_RADII),
        tuple(rows),
    )


def table_5(evaluations: Sequence[Evaluation]) -> Table:
    """ω-bound errors in l2."""
    found = [(e, x.bounded) for e, x in _with_threat(evaluations, "l2") if x.bounded]
    rows = [
        Row(evaluation.subject.name, tuple(omega_error(bounded, radius) for radius in OMEGA_RADII))
        for evaluation, bounded in found
    ]
    return Table(
        "table-5",
        "Table 5: ω-bound error in l2",
        f"Share of images whose ω-bound is below ε, over {images(len(e) for e, _ in found)}. Heuristic: ω is an "
        "estimate, and the table of bound validity counts how often an attack refuted it.",
        tuple(Column(f"ε = {r:g}", f"Share of images with an ω-bound below {r:g}.", "low") for r in OMEGA_RADII),
        tuple(rows),
    )


def omega_error(bounded: Bounded | None, radius: float) -> Cell:
    """The ω-bound error; beyond the grid of ω it is 100 % for want of an estimate, which the note says."""
    if bounded is None:
        return Cell(NOTHING.text, None, "refused")
    end = bounded.eps[-1] if bounded.eps else 0.0
    return share(below(bounded.omega_bound, radius), f"ω known up to {end:g}" if radius > end else "")


def _omega(bounded: Bounded, eps: float) -> Cell:
    used = next((radius for radius in bounded.eps if radius >= eps), None)
    if used is None:
        return Cell(NOTHING.text, None, f"ω known up to {bounded.eps[-1]:g}")
    return number(bounded.omega_at(eps), "" if used == eps else f"at {used:.3g}")


def _certified_error(evaluation: Evaluation, smoothed: Smoothed, radius: float) -> Cell:
    if not smoothed.radii:
        return share(~evaluation.certified(smoothed, radius))
    tested = next((tested for tested in smoothed.radii if tested >= radius), None)
    if tested is None:
        return Cell(NOTHING.text, None, f"tested up to {smoothed.radii[-1]:g}")
    return share(~evaluation.certified(smoothed, radius), "" if tested == radius else f"tested at {tested:g}")


def _with_threat(evaluations: Sequence[Evaluation], threat: str) -> list[tuple[Evaluation, Examined]]:
    return [(e, e.threats[threat]) for e in evaluations if threat in e.threats]


def _n(found: Sequence[tuple[Evaluation, Examined]]) -> str:
    return images(len(evaluation) for evaluation, _ in found)


def _top_k(evaluations: Sequence[Evaluation]) -> str:
    ks = sorted({evaluation.settings.topk for evaluation in evaluations} - {1})
    return f" Errors are top-{' or top-'.join(map(str, ks))} errors." if ks else ""


def _methods(bounds: Sequence[Bounded]) -> str:
    return " or ".join(sorted({bounded.method for bounded in bounds}))
