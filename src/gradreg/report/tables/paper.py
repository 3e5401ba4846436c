"""The columns of the paper's Tables 1 to 5, for our own evaluations.

The robust error at ε counts images with a distance ≤ ε, the ω-bound error at ε images with a bound < ε, the certified
error at r images without the correct class and a radius ≥ r. Misclassified images have distance and bound 0.
"""

from collections.abc import Iterable

import torch

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Bounded, Evaluation, Smoothed
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import images
from gradreg.report.tables.cells import clean_error, mean, number, share
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table

# The paper's, whatever the usual radii of the data set are: quoted rows stand in the same columns.
_LINF_RADII = (2 / 255, 8 / 255)
_CERTIFIED_RADII = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
_OMEGA_RADII = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)

CLEAN = Column("clean error", "Fraction of unperturbed test images that are misclassified.", "low")
HOURS = Column("training hours", "Wall time of the training run.", "low")
RATIO = Column(
    "× undefended",
    "Training hours over those of the undefended model of the same architecture and number of epochs in this report.",
    "low",
)


def table_1(comparison: Comparison) -> Table:
    """Robustness in l∞."""
    found = comparison.under("linf")
    rows = [
        Row(
            evaluation.subject.name,
            (
                clean_error(evaluation),
                *(_lipschitz_error(record.bounded, radius) for radius in _LINF_RADII),
                *(_omega_error(record.bounded, radius) for radius in _LINF_RADII),
                *(share(record.robust_error(radius)) for radius in _LINF_RADII),
                number(evaluation.subject.hours),
                number(comparison.cost_ratio(evaluation), unit="×"),
            ),
            models=(evaluation.subject.name,),
        )
        for evaluation, record in found
    ]
    bound_help = "Fraction of images whose {}-bound is below ε: a heuristic that an attack may refute."
    attack_help = "Fraction of images that are misclassified or have an adversarial image within ε, by the attacks."
    return Table(
        "table-1",
        "Table 1: robustness in l∞",
        "Clean error, and robust error at the paper's l∞ radii ε by the heuristic L- and ω-bound and by the attacks, "
        f"over {images(len(each) for each, _ in found)}. Stronger attacks can only raise the empirical error.",
        (
            CLEAN,
            *(
                Column(f"{bound}-bound error at {radius_name(r)}", bound_help.format(bound), "low")
                for bound in ("L", "ω")
                for r in _LINF_RADII
            ),
            *(Column(f"empirical error at {radius_name(r)}", attack_help, "low") for r in _LINF_RADII),
            HOURS,
            RATIO,
        ),
        tuple(rows),
    )


def table_2(comparison: Comparison) -> Table:
    """Mean distances in l2."""
    found = comparison.under("l2")
    rows = [
        Row(
            evaluation.subject.name,
            (
                clean_error(evaluation),
                mean(record.bounded.lipschitz_bound, "without a bound") if record.bounded else NOTHING,
                mean(record.bounded.omega_bound, "without a bound") if record.bounded else NOTHING,
                mean(record.distance, "unbroken"),
                number(evaluation.subject.hours),
            ),
            models=(evaluation.subject.name,),
        )
        for evaluation, record in found
    ]
    return Table(
        "table-2",
        "Table 2: mean adversarial distance in l2",
        f"Means over {images(len(each) for each, _ in found)}; misclassified images count 0, unbroken ones are left "
        f"out and counted in a note. Both bounds are heuristic.",
        (
            CLEAN,
            Column("L-bound", "Mean of gap/L, eq. (bound 1) of Prop. 2.2 with an estimated L: heuristic.", "high"),
            Column("ω-bound", "Mean of the bound by the modulus of continuity, Prop. 2.2: heuristic.", "high"),
            Column("empirical", "Mean distance to the nearest adversarial image found.", "high"),
            HOURS,
        ),
        tuple(rows),
    )


def table_3(comparison: Comparison) -> Table:
    """Regularity in l2."""
    found = _bounded(comparison)
    rows = [
        Row(
            evaluation.subject.name,
            (
                number(float(bounded.gradient_norm.double().mean()), f"n = {len(bounded.gradient_norm)}"),
                number(float(bounded.gradient_norm.max()), f"n = {len(bounded.gradient_norm)}"),
                _omega(bounded, 0.5),
                _omega(bounded, 1.0),
            ),
            models=(evaluation.subject.name,),
        )
        for evaluation, bounded in found
    ]
    norm = "gradient of the margin of the softmax probabilities"
    return Table(
        "table-3",
        "Table 3: regularity in l2",
        f"The l2 norm of the {norm} over {images(len(each) for each, _ in found)}, and the modulus of continuity ω(ε), "
        f"estimated by {_methods(bounded for _, bounded in found)}: heuristic. The maximum grows with n. Where ε is "
        "not on the grid of ω, a note names the next radius, which is used.",
        (
            Column("mean ‖∇ℓ‖", f"Mean norm of the {norm}.", "low"),
            Column("max ‖∇ℓ‖", f"Largest norm of the {norm}.", "low"),
            Column("ω(0.5)", "How much the loss can exceed its linear model within distance 0.5.", "low"),
            Column("ω(1.0)", "How much the loss can exceed its linear model within distance 1.", "low"),
        ),
        tuple(rows),
    )


def table_4(comparison: Comparison) -> Table:
    """Certificates by randomized smoothing."""
    found = [(evaluation, smoothed) for evaluation in comparison.evaluations for smoothed in evaluation.smoothing]
    rows = [
        Row(
            f"{evaluation.subject.name}, σ = {smoothed.sigma:g}",
            tuple(_certified_error(evaluation, smoothed, radius) for radius in _CERTIFIED_RADII),
            models=(evaluation.subject.name,),
        )
        for evaluation, smoothed in found
    ]
    alphas = sorted({smoothed.alpha for _, smoothed in found})
    risk = " or ".join(f"{alpha:g}" for alpha in alphas)
    return Table(
        "table-4",
        "Table 4: certified error of the smoothed classifier",
        "Fraction of images that the smoothed classifier does not classify correctly with a certified l2 radius of at "
        f"least r, over {images(len(each) for each, _ in found)}. Probabilistic: each certificate fails with "
        f"probability at most {risk}, and holds for the classifier under Gaussian noise σ, not for the network itself.",
        tuple(Column(f"r = {r:g}", f"Certified error at l2 radius {r:g}.", "low") for r in _CERTIFIED_RADII),
        tuple(rows),
    )


def table_5(comparison: Comparison) -> Table:
    """ω-bound errors in l2."""
    found = _bounded(comparison)
    rows = [
        Row(
            evaluation.subject.name,
            tuple(_omega_error(bounded, radius) for radius in _OMEGA_RADII),
            models=(evaluation.subject.name,),
        )
        for evaluation, bounded in found
    ]
    return Table(
        "table-5",
        "Table 5: ω-bound error in l2",
        f"Fraction of images whose ω-bound is below ε, over {images(len(each) for each, _ in found)}. Heuristic: ω is "
        "estimated. How often an attack violated the bound is in the table of bound validity.",
        tuple(Column(f"ε = {r:g}", f"Fraction of images with an ω-bound below {r:g}.", "low") for r in _OMEGA_RADII),
        tuple(rows),
    )


def _omega_error(bounded: Bounded | None, radius: float) -> Cell:
    """The ω-bound error; beyond the grid of ω it is 100 % for lack of an estimate, as the note says."""
    if bounded is None:
        return Cell(NOTHING.text, None, "refused")
    end = bounded.eps[-1] if bounded.eps else 0.0
    return share(below(bounded.omega_bound, radius), f"ω known up to {end:g}" if radius > end else "")


def _lipschitz_error(bounded: Bounded | None, radius: float) -> Cell:
    return Cell(NOTHING.text, None, "refused") if bounded is None else share(below(bounded.lipschitz_bound, radius))


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


def below(bound: torch.Tensor, radius: float) -> torch.Tensor:
    """In the precision of the bounds: one of 0.1 in single precision is not below 0.1."""
    return bound < torch.tensor(radius, dtype=bound.dtype, device="cpu")


def _bounded(comparison: Comparison) -> list[tuple[Evaluation, Bounded]]:
    return [(each, record.bounded) for each, record in comparison.under("l2") if record.bounded]


def _methods(bounds: Iterable[Bounded]) -> str:
    return " or ".join(sorted({bounded.method for bounded in bounds}))
