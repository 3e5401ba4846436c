"""The table to choose a recipe by: accuracy at one radius against the cost of training, seeds of a recipe together."""

from collections.abc import Callable, Sequence
from statistics import mean

from torch import Tensor

from gradreg.display.numbers import interval, percent, significant
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.report.comparison import Comparison, Recipe, training_seed
from gradreg.report.numbers import ball, clean_errors, images
from gradreg.report.tables.cells import number, word
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table
from gradreg.report.tables.settings import changes_text, flat, nearest_recipe
from gradreg.smoothing.intervals import clopper_pearson

_Counted = tuple[int, int]
"""Correct images, and of how many."""


def reference(comparison: Comparison, threat: str, radius: float) -> Table:
    """Clean and robust accuracy at the radius, against the cost of training."""
    where = ball(comparison.symbol(threat), radius)
    return Table(
        f"reference-{threat}",
        f"Recipes at {where}",
        f"Clean accuracy, and robust accuracy at {where}, over {images(len(e) for e, _ in comparison.under(threat))}. "
        "Empirical: stronger attacks can only lower it. Below an accuracy: its 95 % Clopper-Pearson interval over "
        "images (that of one network, also for a mean over seeds), and its range over the seeds. Below a recipe: "
        "changed settings.",
        (
            Column("recipe", "The packaged recipe that differs least, and changed settings."),
            Column("clean accuracy", "Over the whole test set if it was evaluated.", "high"),
            Column("robust accuracy", "Images that neither our attacks nor AutoAttack, where run, broke.", "high"),
            Column("by our attacks", "Images that our attacks did not break within the radius.", "high"),
            Column("by AutoAttack", "Images that the reference AutoAttack did not break at the radius.", "high"),
            Column("hours", "Of training, on the machine that trained.", "low"),
            Column("× undefended", "Training time over that of the undefended recipe of as many epochs.", "low"),
            Column("seeds", "Of the training."),
            Column("commit", "Of the code of the evaluation."),
        ),
        tuple(_row(recipe, comparison, threat, radius) for recipe in comparison.recipes(threat)),
    )


def _row(recipe: Recipe, comparison: Comparison, threat: str, radius: float) -> Row:
    each = recipe.evaluations
    hours = [evaluation.subject.hours for evaluation in each if evaluation.subject.hours is not None]
    ratios = [ratio for evaluation in each if (ratio := comparison.cost_ratio(evaluation)) is not None]

    def over_seeds(robust: Callable[[ThreatRecord], Tensor | None]) -> Cell:
        return _over_seeds(recipe, lambda evaluation: _counted(robust(evaluation.threats[threat])))

    return Row(
        recipe.name,
        (
            _recipe(each[0]),
            _over_seeds(recipe, _clean),
            over_seeds(lambda record: record.robust(radius)),
            over_seeds(lambda record: record.robust_to_attacks(radius)),
            over_seeds(lambda record: _by_autoattack(record, radius)),
            _mean(hours),
            _mean(ratios, "×"),
            word(", ".join(map(str, recipe.seeds))),
            word(", ".join(dict.fromkeys(evaluation.origin.commit or "–" for evaluation in each))),
        ),
    )


def _by_autoattack(record: ThreatRecord, radius: float) -> Tensor | None:
    """Images that AutoAttack did not break at the radius; None if it was not run there."""
    there = (each.robust for each in record.confirmed if abs(each.eps - radius) <= 1e-6 * radius)
    return next(there, None)


def _recipe(evaluation: Evaluation) -> Cell:
    """The packaged recipe that is nearest to its own, with changed settings."""
    found = nearest_recipe(flat(evaluation.subject.recipe or {}))
    return NOTHING if found is None else Cell(found[0], None, changes_text(found[1]))


def _clean(evaluation: Evaluation) -> _Counted:
    errors, n = clean_errors(evaluation)
    return n - errors, n


def _counted(robust: Tensor | None) -> _Counted | None:
    return None if robust is None else (int(robust.sum()), len(robust))


def _over_seeds(recipe: Recipe, figure: Callable[[Evaluation], _Counted | None]) -> Cell:
    """One seed's fraction with its interval, or the mean of several and their range; if some lack it, which have it."""
    found = [(training_seed(evaluation), figure(evaluation)) for evaluation in recipe.evaluations]
    known = [(seed, *counted) for seed, counted in found if counted is not None]
    if not known:
        return NOTHING
    shares, counts = [right / n for _, right, n in known], sorted({n for *_, n in known})
    # Networks of all seeds are evaluated on the same images, so their mean does little against the choice of images.
    low, high = clopper_pearson(round(mean(shares) * counts[0]), counts[0])
    note = f"{interval(low, high)}, n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}"
    if len(known) > 1:
        note += f"; {interval(min(shares), max(shares))} over {len(known)} seeds"
    if len(known) < len(found):
        note += f"; of seed {', '.join(str(seed) for seed, *_ in sorted(known))}"
    return Cell(percent(mean(shares)), mean(shares), note)


def _mean(values: Sequence[float], unit: str = "") -> Cell:
    if len(values) < 2:
        return number(values[0] if values else None, unit=unit)
    return number(mean(values), f"{significant(min(values))}–{significant(max(values))}", unit)
