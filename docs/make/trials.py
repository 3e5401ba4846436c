"""The trials that settings were chosen by: how many there were for each method, and what held-out images said."""

from collections.abc import Sequence

from docs.make.goals import place_name
from docs.make.verdicts import Method, Verdict, about, ahead
from gradreg.display.numbers import percent
from gradreg.report.tables.cells import count, number, word
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table
from gradreg.report.tables.runs import Run, middle
from gradreg.report.tables.settings import changes_text, differences

HELD_OUT = "held-out"
_CAPTION = (
    "Accuracy on the images that the training held out, clean and under `standard` attacks. Changed, and ahead under "
    "attack: against the trial of the method that has most in common with its others, in percentage points, with the "
    "paired 95 % interval over images."
)
_TAKEN = " Taken: the rows of the goals have these settings."
_NOTHING_YET = "No trial has been judged yet."
_WORDS = {"adversarial": "adversarial training", "gradient": "the penalty"}


def trials_table(verdicts: Sequence[Verdict]) -> Table:
    """Method by method, the most robust first; the records that were judged on test images say what was taken."""
    trials = [each for each in verdicts if each.split == HELD_OUT]
    chosen = [each.settings for each in verdicts if each.split != HELD_OUT]
    groups: dict[tuple[object, str], list[Verdict]] = {}
    for each in trials:
        groups.setdefault((each.place, _objective(each)), []).append(each)
    rows = [row for group in groups.values() for row in _rows(group, chosen)]
    counts = "; ".join(f"{place_name(*group[0].place)}, {kind}: {len(group)}" for (_, kind), group in groups.items())
    return Table(
        "trials",
        "Trials",
        f"{_CAPTION}{_TAKEN if chosen else ''} Trials by method: {counts}. {about(trials)}" if trials else _NOTHING_YET,
        (
            Column("method", "What was trained."),
            Column("changed", "Settings that differ from the trial that has most in common with the others."),
            Column("clean", "Accuracy on held-out images.", "high"),
            Column("robust", "Accuracy under attack on held-out images.", "high"),
            Column("ahead", "Under attack, of the trial that the changes are to.", "high"),
            Column("hours", "Of training.", "low"),
            Column("n", "Held-out images."),
            *([Column("taken", "Whether the rows of the goals have these settings.")] if chosen else []),
        ),
        tuple(rows),
        of="trial",
    )


def _rows(group: Sequence[Verdict], chosen: Sequence[object]) -> list[Row]:
    runs = {each.name: Run(each.name, each.settings, ()) for each in group}
    base = middle(list(runs.values()))
    return [
        Row(
            each.name,
            (
                word(f"{_objective(each)}, {place_name(*each.place)}"),
                word(changes_text(differences(each.settings, base.settings)) or "–"),
                *(Cell(percent(value), value) for value in (each.clean, each.robust)),
                _ahead(each, next(other for other in group if other.name == base.name)),
                number(each.hours),
                count(len(each.letters)),
                *([word("taken" if each.settings in chosen else "–")] if chosen else []),
            ),
        )
        for each in sorted(group, key=lambda one: (-one.robust, -one.clean))
    ]


def _ahead(trial: Verdict, base: Verdict) -> Cell:
    """Where both held out the same images."""
    if trial is base or (trial.images, len(trial.letters)) != (base.images, len(base.letters)):
        return NOTHING
    first, second = (Method(each.name, (each,)).robust for each in (trial, base))
    found = ahead(first, second)
    return Cell(found.text, found.value, found.note.removesuffix(", images alone"))


def _objective(verdict: Verdict) -> str:
    name = str(verdict.recipe["objective"]["name"])
    return _WORDS.get(name, name)
