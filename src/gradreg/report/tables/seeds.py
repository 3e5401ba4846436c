"""Runs of one recipe that differ in the seed only: mean and spread of their accuracies."""

from collections.abc import Callable, Sequence
from statistics import mean, stdev

from gradreg.config.fractions import radius_name
from gradreg.display.numbers import interval, percent
from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison, Recipe
from gradreg.report.numbers import clean_accuracy
from gradreg.report.tables.cells import word
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table

Measure = Callable[[Evaluation], float | None]
"""An accuracy of a run; None where it was not measured."""


def repeated(comparison: Comparison) -> list[Recipe]:
    """Recipes that were trained more than once."""
    return [recipe for recipe in comparison.recipes() if len(recipe.evaluations) > 1]


def measures(comparison: Comparison) -> dict[tuple[str, str], Measure]:
    """Clean accuracy, and robust accuracy at every usual radius: by threat ("" for clean) and name."""

    def robust(threat: str, radius: float) -> Measure:
        return lambda each: each.threats[threat].robust_accuracy(radius).value if threat in each.threats else None

    found: dict[tuple[str, str], Measure] = {("", "clean"): lambda each: clean_accuracy(each).value}
    for threat in comparison.threats:
        for radius in comparison.radii(threat):
            found[threat, f"{comparison.symbol(threat)} at {radius_name(radius)}"] = robust(threat, radius)
    return found


def seeds(comparison: Comparison) -> Table:
    """One row per recipe that was trained more than once; no rows where there is none."""
    asked = measures(comparison)
    rows = [
        Row(
            recipe.name,
            (*(_spread(recipe, measure) for measure in asked.values()), word(", ".join(map(str, recipe.seeds)))),
            models=tuple(each.subject.name for each in recipe.evaluations),
        )
        for recipe in repeated(comparison)
    ]
    return Table(
        "seeds",
        "Runs of one recipe",
        "Mean accuracy over training runs that differ in the seed only. Below it: the standard deviation between the "
        "runs in percentage points, and the range from the lowest to the highest. It is the spread of training, not of "
        "the choice of images.",
        (
            *(
                Column("clean accuracy" if not threat else name, "Mean over the runs.", "high", threat)
                for threat, name in asked
            ),
            Column("seeds", "Of the training."),
        ),
        tuple(rows),
        of="recipe",
    )


def _spread(recipe: Recipe, measure: Measure) -> Cell:
    found: Sequence[float] = [value for each in recipe.evaluations if (value := measure(each)) is not None]
    if not found:
        return NOTHING
    if len(found) == 1:
        return Cell(percent(found[0]), found[0], "one run")
    note = f"± {100 * stdev(found):.1f}, {interval(min(found), max(found))}, {len(found)} runs"
    return Cell(percent(mean(found)), mean(found), note)
