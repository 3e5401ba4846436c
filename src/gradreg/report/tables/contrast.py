"""Two recipes, each trained with several seeds: how far apart they are, with images and training runs both random.

With a_si = 1 if image i is robust with the network of seed s of the one recipe, and b_ti of the other,

    D = mean a − mean b,   Var D ≈ Var_i(ā_i − b̄_i)/n + Var_s(ā_s)/S + Var_t(b̄_t)/T,

where the images' term is that of the paired test and the seeds' that of Welch's. Variance between seeds of a single
image is in both terms, so the interval is rather too long than too short.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor

from gradreg.display.numbers import percent
from gradreg.extras import need
from gradreg.report.comparison import Comparison, Recipe
from gradreg.report.numbers import ball
from gradreg.report.tables.cells import count, word
from gradreg.report.tables.layout import Cell, Column, Row, Table


@dataclass(frozen=True)
class _Difference:
    """A difference of two means with its 95 % interval."""

    value: float
    low: float
    high: float
    with_seeds: bool
    """Whether the interval covers the variance between training runs: not if one side was trained once."""


def difference(first: Tensor, second: Tensor) -> _Difference:
    """Between the means of two tables of (seeds, images), over the same images in the same order."""
    need("scipy", "An interval")
    from scipy.stats import t

    first, second = first.double(), second.double()
    value = float(first.mean() - second.mean())
    n, with_seeds = first.shape[1], min(len(first), len(second)) > 1
    # Each term of the variance with its degrees of freedom, for Satterthwaite's approximation.
    terms = [(float((first.mean(0) - second.mean(0)).var()) / n, n - 1)] if n > 1 else [(math.inf, 1)]
    if with_seeds:
        terms += [(float(table.mean(1).var()) / len(table), len(table) - 1) for table in (first, second)]
    variance = sum(term for term, _ in terms)
    if variance == 0 or not math.isfinite(variance):
        return _Difference(value, value - variance, value + variance, with_seeds)
    freedom = variance**2 / sum(term**2 / degrees for term, degrees in terms)
    half = float(t.ppf(0.975, freedom)) * math.sqrt(variance)
    return _Difference(value, value - half, value + half, with_seeds)


def contrast(comparison: Comparison, threat: str, radii: Sequence[float]) -> Table:
    """Every recipe against the first, at those radii; radius 0 asks for clean accuracy."""
    recipes = comparison.recipes(threat)
    return _table([_row(other, recipes[0], threat, radius) for radius in radii for other in recipes[1:]])


def contrasts(comparison: Comparison) -> Table:
    """Recipes trained more than once: the one of the highest robust accuracy against each of the others."""
    rows = []
    for threat in comparison.threats:
        radius = comparison.main_radius(threat)
        repeated = [each for each in comparison.recipes(threat) if len(each.evaluations) > 1]
        best = max(repeated, key=lambda each: _mean_accuracy(each, threat, radius), default=None)
        others = [each for each in repeated if each is not best]
        rows += [_row(best, other, threat, at) for at in (0.0, radius) for other in others if best is not None]
    return _table(rows)


def _table(rows: Sequence[Row | None]) -> Table:
    return Table(
        "contrast",
        "Recipe against recipe",
        "Robust accuracy at the radius, mean over seeds, on the images that all these networks were attacked on, and "
        "the difference in percentage points. Below it: its 95 % interval over images and training runs, or over "
        "images alone where a recipe was trained once.",
        (
            Column("first", "Robust accuracy of the recipe named first."),
            Column("second", "Robust accuracy of the recipe named second."),
            Column("difference", "First minus second, in percentage points; no evidence if the interval holds 0."),
            Column("seeds", "Training seeds of the first and of the second."),
            Column("n", "Images that all these networks were attacked on."),
        ),
        tuple(row for row in rows if row is not None),
    )


def _row(first: Recipe, second: Recipe, threat: str, radius: float) -> Row | None:
    """None if there is no image that all their networks were attacked on."""
    images = _common([each.index for each in (*first.evaluations, *second.evaluations)])
    if not len(images):
        return None
    a, b = (_robust(each, images, threat, radius) for each in (first, second))
    symbol = first.evaluations[0].threats[threat].symbol
    where = ball(symbol, radius) if radius else f"clean ({symbol})"
    return Row(
        f"{first.name} against {second.name}, {where}",
        (
            *(Cell(percent(accuracy), accuracy) for accuracy in (float(a.mean()), float(b.mean()))),
            points(difference(a, b)),
            word(" and ".join(", ".join(map(str, each.seeds)) for each in (first, second))),
            count(len(images)),
        ),
        models=tuple(each.subject.name for each in (*first.evaluations, *second.evaluations)),
        threat=threat,
    )


def points(found: _Difference) -> Cell:
    """In percentage points, with the interval and what is random in it."""
    value, low, high = (f"{100 * figure:+.1f}".replace("-", "−") for figure in (found.value, found.low, found.high))
    return Cell(value, found.value, f"{low} to {high}, images{' and seeds' if found.with_seeds else ' alone'}")


def _robust(recipe: Recipe, images: Tensor, threat: str, radius: float) -> Tensor:
    """1 where an image is robust at the radius, seeds by images."""
    rows = []
    for evaluation in recipe.evaluations:
        order = evaluation.index.argsort()
        places = order[torch.searchsorted(evaluation.index[order], images)]
        rows.append(evaluation.threats[threat].robust(radius)[places])
    return torch.stack(rows).double()


def _common(selections: Sequence[Tensor]) -> Tensor:
    """The images of all of them, in rising order."""
    common = selections[0]
    for selection in selections[1:]:
        common = common[torch.isin(common, selection)]
    return common.sort().values


def _mean_accuracy(recipe: Recipe, threat: str, radius: float) -> float:
    return mean(each.threats[threat].robust_accuracy(radius).value for each in recipe.evaluations)
