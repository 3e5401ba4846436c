"""Two recipes, each trained with several seeds: how far apart they are, images and trainings both drawn by lot.

With a_si = 1 if image i withstands with the network of seed s of the one recipe, and b_ti of the other,

    D = mean a − mean b,   Var D ≈ Var_i(ā_i − b̄_i)/n + Var_s(ā_s)/S + Var_t(b̄_t)/T,

where the images' share is that of the paired test and the seeds' that of Welch's. What an image does with one seed and
not with another is in both shares, so the interval is rather too long than too short.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Evaluation
from gradreg.norms import ThreatName
from gradreg.report.layout import Cell, Column, Row, Table
from gradreg.report.numbers import STANDARD_RADII, THREAT_SIGNS, count, word
from gradreg.report.seeds import Trained, by_recipe


@dataclass(frozen=True)
class Apart:
    """A difference of two means with its 95 % interval."""

    value: float
    low: float
    high: float
    with_seeds: bool
    """Whether the interval knows of the luck of a training: not if one side was trained once."""


def apart(first: Tensor, second: Tensor) -> Apart:
    """How far the means of two tables of (seeds, images) are apart, over the same images in the same order."""
    from scipy.stats import t

    first, second = first.double(), second.double()
    value = float(first.mean() - second.mean())
    n, with_seeds = first.shape[1], min(len(first), len(second)) > 1
    # Each share of the variance with its degrees of freedom, for Satterthwaite's approximation.
    shares = [(float((first.mean(0) - second.mean(0)).var()) / n, n - 1)] if n > 1 else [(math.inf, 1)]
    if with_seeds:
        shares += [(float(table.mean(1).var()) / len(table), len(table) - 1) for table in (first, second)]
    variance = sum(share for share, _ in shares)
    if variance == 0 or not math.isfinite(variance):
        return Apart(value, value - variance, value + variance, with_seeds)
    freedom = variance**2 / sum(share**2 / degrees for share, degrees in shares)
    half = float(t.ppf(0.975, freedom)) * math.sqrt(variance)
    return Apart(value, value - half, value + half, with_seeds)


def contrast(evaluations: Sequence[Evaluation], threat: ThreatName, radii: Sequence[float]) -> Table:
    """Every recipe against the one that stands first, at those radii; radius 0 asks for clean accuracy."""
    recipes = by_recipe([each for each in evaluations if threat in each.threats])
    return _table([_row(other, recipes[0], threat, radius) for radius in radii for other in recipes[1:]])


def contrasts(evaluations: Sequence[Evaluation]) -> Table:
    """Recipes trained more than once: the one that most images withstand with against each of the others."""
    rows = []
    for threat, (_, radius, *_) in STANDARD_RADII.items():
        recipes = by_recipe([each for each in evaluations if threat in each.threats])
        repeated = [each for each in recipes if len(each.evaluations) > 1]
        best = max(repeated, key=lambda each: _mean_share(each, threat, radius), default=None)
        others = [each for each in repeated if each is not best]
        rows += [_row(best, other, threat, at) for at in (0.0, radius) for other in others if best is not None]
    return _table(rows)


def _table(rows: Sequence[Row | None]) -> Table:
    return Table(
        "contrast",
        "Recipe against recipe",
        "The share of images that withstand within the radius, the mean over the seeds, on the images that all these "
        "networks were attacked on, and by how many points the recipes are apart. Below it: its 95 % interval for the "
        "choice of images and the luck of the trainings, or of images alone where a recipe was trained once.",
        (
            Column("first", "With the recipe named first."),
            Column("second", "With the recipe named second."),
            Column("first less second", "In points. An interval that holds 0: they may be as good."),
            Column("seeds", "Of the one and of the other."),
            Column("n", "Images that all the networks were attacked on."),
        ),
        tuple(row for row in rows if row is not None),
    )


def _row(first: Trained, second: Trained, threat: ThreatName, radius: float) -> Row | None:
    """None if there is no image that all their networks were attacked on."""
    images = _common([each.index for each in (*first.evaluations, *second.evaluations)])
    if not len(images):
        return None
    a, b = (_withstood(each, images, threat, radius) for each in (first, second))
    where = f"{THREAT_SIGNS[threat]} {radius_name(radius)}" if radius else f"clean ({THREAT_SIGNS[threat]})"
    return Row(
        f"{first.name} against {second.name}, {where}",
        (
            *(Cell(f"{100 * share:.1f} %", share) for share in (float(a.mean()), float(b.mean()))),
            _points(apart(a, b)),
            word(" and ".join(", ".join(map(str, each.seeds)) for each in (first, second))),
            count(len(images)),
        ),
    )


def _points(found: Apart) -> Cell:
    value, low, high = (f"{100 * figure:+.1f}".replace("-", "−") for figure in (found.value, found.low, found.high))
    return Cell(value, found.value, f"{low} to {high}, images{' and seeds' if found.with_seeds else ' alone'}")


def _withstood(trained: Trained, images: Tensor, threat: ThreatName, radius: float) -> Tensor:
    """1 where an image withstands within the radius, seeds by images."""
    rows = []
    for evaluation in trained.evaluations:
        order = evaluation.index.argsort()
        places = order[torch.searchsorted(evaluation.index[order], images)]
        rows.append(evaluation.threats[threat].robust(radius)[places])
    return torch.stack(rows).double()


def _common(selections: Sequence[Tensor]) -> Tensor:
    """What all of them hold, in rising order."""
    common = selections[0]
    for selection in selections[1:]:
        common = common[torch.isin(common, selection)]
    return common.sort().values


def _mean_share(trained: Trained, threat: ThreatName, radius: float) -> float:
    shares = [float(each.threats[threat].robust(radius).double().mean()) for each in trained.evaluations]
    return sum(shares) / len(shares)
