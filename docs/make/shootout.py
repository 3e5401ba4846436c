"""Every cheap defence beside adversarial training, from records of `python -m bench verdict`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from docs.make.verdicts import (
    Method,
    Verdict,
    about_with_times,
    accuracy,
    ahead,
    by_method,
    hours_text,
    ratio,
)
from gradreg.report.tables.cells import count, word
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table

FIGURE, RECORDS = "docs/shootout.svg", "results/shootout/*.json"
BASE = "at"
_CAPTION = (
    "Accuracy on clean images and by `standard` attacks at l∞ 8/255, mean over seeds and their range. Ahead of AT: in "
    "percentage points, with the 95 % interval over images and seeds. Time: seconds per step, measured side by side, "
    "times the steps of the training, over AT's; below it the hours that the training took. Step: its arithmetic, "
    "counted, in forwards F of the network (plain training: 3F)."
)
_NOTHING_YET = "No network of results/shootout.sh has been judged yet."
_ALT = "Robust against clean accuracy of every method, with its time of training over that of adversarial training"


def shootout_table(verdicts: Sequence[Verdict]) -> Table:
    """A row per method, the most robust first."""
    methods = ranked(verdicts)
    base = next((each for each in methods if each.name == BASE), None)
    return Table(
        "shootout",
        "The shoot-out",
        f"{_CAPTION} {about_with_times(verdicts)}" if methods else _NOTHING_YET,
        (
            Column("clean", "Accuracy.", "high"),
            Column("ahead of AT", "Clean, in percentage points.", "high"),
            Column("robust", "Accuracy under attack.", "high"),
            Column("ahead of AT", "Under attack, in percentage points.", "high"),
            Column("time × AT", "Time of all steps over that of AT.", "low"),
            Column("step", "Forwards of the network, counted.", "low"),
            Column("seeds", "Of training."),
            Column("n", "Test images."),
        ),
        tuple(Row(method.name, _cells(method, base)) for method in methods),
        of="method",
    )


def figure_table(verdicts: Sequence[Verdict]) -> Table:
    """The figure as a page shows it, without rows; it is there once two methods are."""
    drawn = can_be_drawn(verdicts)
    caption = f"![{_ALT}]({Path(FIGURE).name})" if drawn else "The figure needs two methods that were judged."
    return Table("shootout-figure", "The shoot-out", caption, (), ())


def can_be_drawn(verdicts: Iterable[Verdict]) -> bool:
    """Whether there is something to compare."""
    return len({each.method for each in verdicts}) > 1


def ranked(verdicts: Iterable[Verdict]) -> list[Method]:
    """The methods, the most robust first."""
    return sorted(by_method(verdicts).values(), key=lambda each: (-float(each.robust.mean()), each.name))


def _cells(method: Method, base: Method | None) -> tuple[Cell, ...]:
    other = None if method is base else base
    return (
        accuracy(method.clean),
        NOTHING if other is None else ahead(method.clean, other.clean),
        accuracy(method.robust),
        NOTHING if other is None else ahead(method.robust, other.robust),
        NOTHING if base is None else ratio(method.time_over(base), hours_text(method)),
        Cell(f"{method.forwards:.1f}F", method.forwards),
        word(", ".join(map(str, method.seeds))),
        count(method.images),
    )
