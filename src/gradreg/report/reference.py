"""The table to choose a recipe by: what each costs and what it gives at one radius, seeds of a recipe together."""

from collections.abc import Callable, Sequence
from statistics import mean

from torch import Tensor

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Evaluation, Examined
from gradreg.norms import ThreatName
from gradreg.report.compare import cost_ratio
from gradreg.report.layout import NOTHING, Cell, Column, Row, Table
from gradreg.report.numbers import THREAT_SIGNS, clean_errors, images, number, significant, word
from gradreg.report.seeds import Trained, by_recipe, training_seed
from gradreg.report.settings import flat, nearest_recipe, told
from gradreg.smoothing.intervals import clopper_pearson

Counted = tuple[int, int]
"""How many images are right, and of how many."""


def reference(evaluations: Sequence[Evaluation], threat: ThreatName, radius: float) -> Table:
    """Clean and robust accuracy at the radius, against the cost of training."""
    found = [each for each in evaluations if threat in each.threats]
    where = f"{THREAT_SIGNS[threat]} {radius_name(radius)}"
    # The undefended network that costs are compared with need not have been examined for this threat.
    rows = [_row(trained, evaluations, threat, radius) for trained in by_recipe(found)]
    return Table(
        f"reference-{threat}",
        f"Recipes against {where}",
        f"Accuracy on clean images, and on images moved by at most {where}, over {images(map(len, found))}. The "
        "figures are what the attacks left standing: stronger ones can only lower them. Below a figure: its 95 % "
        "interval for the choice of n images, which takes the mean over seeds for a single network's accuracy, and the "
        "range over the seeds. Below a recipe: what was turned in it.",
        (
            Column("recipe", "Of ours the one that differs least, and what was turned in it."),
            Column("clean accuracy", "Over the whole test set if it was run through.", "high"),
            Column("robust accuracy", "Images that our attacks did not break within the radius.", "high"),
            Column("by AutoAttack", "Images that the reference AutoAttack did not break at the radius.", "high"),
            Column("by all", "Images that neither broke.", "high"),
            Column("hours", "Of training, on the machine that trained.", "low"),
            Column("× undefended", "Training time over that of the undefended recipe of as many epochs.", "low"),
            Column("seeds", "Of the training."),
            Column("commit", "Of the code that examined it."),
        ),
        tuple(rows),
    )


def _row(trained: Trained, among: Sequence[Evaluation], threat: ThreatName, radius: float) -> Row:
    each = trained.evaluations
    hours = [evaluation.subject.hours for evaluation in each if evaluation.subject.hours is not None]
    ratios = [ratio for ratio in (cost_ratio(evaluation, among) for evaluation in each) if ratio is not None]
    return Row(
        trained.name,
        (
            _recipe(each[0]),
            _over_seeds(trained, _clean),
            _over_seeds(trained, lambda evaluation: _counted(evaluation.threats[threat].robust_to_attacks(radius))),
            _over_seeds(trained, lambda evaluation: _counted(_by_autoattack(evaluation.threats[threat], radius))),
            _over_seeds(trained, lambda evaluation: _counted(_by_all(evaluation.threats[threat], radius))),
            _mean(hours),
            _mean(ratios, "×"),
            word(", ".join(map(str, trained.seeds))),
            word(", ".join(dict.fromkeys(evaluation.origin.commit or "–" for evaluation in each))),
        ),
    )


def _by_autoattack(examined: Examined, radius: float) -> Tensor | None:
    """Images that AutoAttack did not break at the radius; None if it was not run there."""
    there = (each.robust for each in examined.confirmed if abs(each.eps - radius) <= 1e-6 * radius)
    return next(there, None)


def _by_all(examined: Examined, radius: float) -> Tensor | None:
    """Images that neither broke; None if there was only one of them."""
    return None if _by_autoattack(examined, radius) is None else examined.robust(radius)


def _recipe(evaluation: Evaluation) -> Cell:
    """The recipe of ours that it was trained by or nearly so, with what was turned in it."""
    found = nearest_recipe(flat(evaluation.subject.recipe or {}))
    return NOTHING if found is None else Cell(found[0], None, told(found[1]))


def _clean(evaluation: Evaluation) -> Counted:
    errors, n = clean_errors(evaluation)
    return n - errors, n


def _counted(robust: Tensor | None) -> Counted | None:
    return None if robust is None else (int(robust.sum()), len(robust))


def _over_seeds(trained: Trained, figure: Callable[[Evaluation], Counted | None]) -> Cell:
    """One seed's share with its interval, or the mean of several and their range; if some lack it, whose it is."""
    found = [(training_seed(evaluation), figure(evaluation)) for evaluation in trained.evaluations]
    known = [(seed, *counted) for seed, counted in found if counted is not None]
    if not known:
        return NOTHING
    shares, counts = [right / n for _, right, n in known], sorted({n for *_, n in known})
    # Networks of several seeds are judged on the same images, whose choice their mean does little to even out.
    low, high = clopper_pearson(round(mean(shares) * counts[0]), counts[0])
    note = f"{_percent(low, high)}, n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}"
    if len(known) > 1:
        note += f"; {_percent(min(shares), max(shares))} over {len(known)} seeds"
    if len(known) < len(found):
        note += f"; of seed {', '.join(str(seed) for seed, *_ in sorted(known))}"
    return Cell(f"{100 * mean(shares):.1f} %", mean(shares), note)


def _percent(low: float, high: float) -> str:
    return f"{100 * low:.1f}–{100 * high:.1f} %"


def _mean(values: Sequence[float], unit: str = "") -> Cell:
    if len(values) < 2:
        return number(values[0] if values else None, unit=unit)
    return number(mean(values), f"{significant(min(values))}–{significant(max(values))}", unit)
