"""What was promised of robust networks, and whether the records of `python -m bench verdict` hold it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from docs.make.verdicts import (
    ROUNDING,
    SEEDS,
    Method,
    Verdict,
    about_with_times,
    accuracy,
    ahead,
    by_method,
    hours_text,
    ratio,
)
from gradreg.config.fractions import radius_name
from gradreg.errors import DataError
from gradreg.norms import THREATS
from gradreg.report.tables.cells import count
from gradreg.report.tables.contrast import difference
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table

NOT_YET, HELD, MISSED = "not shown yet", "held", "missed"

KINDS: Mapping[str, tuple[str, str, float]] = {
    "near-linf": ("cifar10", "linf", 8 / 255),
    "near-l2": ("cifar10", "l2", 0.5),
    "far-linf": ("fashion-mnist", "linf", 0.1),
    "far-l2": ("fashion-mnist", "l2", 1.5),
    "far-cifar": ("cifar10", "linf", 16 / 255),
}
"""Data, threat and radius of the rows of results/goals.sh."""
_DATA = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST"}
_CAPTION = (
    "Clean accuracy, and robust accuracy by `standard` attacks, means over the seeds and their range. Ahead: of "
    "adversarial training (AT), in percentage points, with the 95 % interval over images and seeds. Time: seconds per "
    "step, measured side by side, times the steps of the training, over AT's; below it the hours that the trainings "
    "took. Arithmetic: that of the training over AT's, counted in forwards F of the network per step."
)


@dataclass(frozen=True)
class Goal:
    """A method against adversarial training, at some places: how far it must be ahead, and what it may cost."""

    name: str
    words: str
    method: str
    kinds: tuple[str, ...]
    least: float
    """What it must be ahead by, on clean images and under attack."""
    beyond_chance: bool
    """Whether the whole 95 % interval must be."""
    cost: float
    """Of the time of adversarial training, at most."""


GOALS = (
    Goal(
        "Near",
        "ahead of adversarial training in clean and in robust accuracy, beyond chance, for at most 0.45 of its time",
        "noisy",
        ("near-linf", "near-l2"),
        least=0.0,
        beyond_chance=True,
        cost=0.45,
    ),
    Goal(
        "Far",
        "at least the clean and the robust accuracy of adversarial training, for at most 0.45 of its time",
        "noisy",
        ("far-linf", "far-l2", "far-cifar"),
        least=0.0,
        beyond_chance=False,
        cost=0.45,
    ),
    Goal(
        "Cheap",
        "within one point of adversarial training, clean and robust, for at most 0.22 of its time",
        "cheap",
        ("near-linf", "near-l2"),
        least=-0.01,
        beyond_chance=False,
        cost=0.22,
    ),
)


@dataclass(frozen=True)
class Contest:
    """One place of a goal, with the networks that there are."""

    goal: Goal
    kind: str
    ours: Method | None
    theirs: Method | None

    @property
    def complete(self) -> bool:
        """Whether both were trained with every seed."""
        return all(each is not None and each.seeds == SEEDS for each in (self.ours, self.theirs))

    @property
    def verdict(self) -> str:
        """Held, missed, or not shown yet."""
        if not self.complete or self.time is None:
            return NOT_YET
        return MISSED if self.shortfalls else HELD

    @property
    def time(self) -> float | None:
        """Of all steps, over that of adversarial training; None if it was not measured."""
        return None if self.ours is None or self.theirs is None else self.ours.time_over(self.theirs)

    @property
    def shortfalls(self) -> list[str]:
        """In what the goal is missed."""
        assert self.ours is not None
        assert self.theirs is not None
        missed = []
        for what in ("clean", "robust"):
            found = difference(getattr(self.ours, what), getattr(self.theirs, what))
            least = self.goal.least - (0 if self.goal.beyond_chance else ROUNDING)
            if not (found.low > least if self.goal.beyond_chance else found.value >= least):
                missed.append(f"{what} accuracy")
        if self.time is None or self.time > self.goal.cost:
            missed.append("time")
        return missed

    @property
    def note(self) -> str:
        """Why it is not held."""
        if self.verdict == NOT_YET:
            return self.lacking
        return f"in {' and '.join(self.shortfalls)}" if self.verdict == MISSED else ""

    @property
    def lacking(self) -> str:
        """Why nothing is shown yet."""
        names = (f"{self.kind}-{self.goal.method}", f"{self.kind}-at")
        parts = [
            f"{name}: {'no seed' if each is None else 'seeds ' + ', '.join(map(str, each.seeds))}"
            for name, each in zip(names, (self.ours, self.theirs), strict=True)
            if each is None or each.seeds != SEEDS
        ]
        return "; ".join(parts) or "no time of its steps"


def contests(verdicts: Iterable[Verdict]) -> list[Contest]:
    """Every place of every goal."""
    methods = by_method(verdicts)
    for name, method in methods.items():
        _check_place(name, method)
    return [
        Contest(goal, kind, methods.get(f"{kind}-{goal.method}"), methods.get(f"{kind}-at"))
        for goal in GOALS
        for kind in goal.kinds
    ]


def answer_table(verdicts: Iterable[Verdict]) -> Table:
    """A line for each goal: what it is, and what became of it."""
    found = contests(verdicts)
    return Table("answer", "Goals", "\n".join(_line(goal, found) for goal in GOALS), (), ())


def goals_table(verdicts: Iterable[Verdict]) -> Table:
    """The figures behind it: a row for each place of a goal that there is a network for."""
    records = list(verdicts)
    shown = [each for each in contests(records) if each.ours is not None or each.theirs is not None]
    return Table(
        "goals",
        "Goals",
        f"{_CAPTION} {about_with_times(records)}" if shown else "No row of results/goals.sh has been judged yet.",
        (
            Column("goal", "Whether it is held."),
            Column("clean", "Of our networks.", "high"),
            Column("AT", "Of those of adversarial training.", "high"),
            Column("ahead", "In percentage points.", "high"),
            Column("robust", "Of our networks.", "high"),
            Column("AT", "Of those of adversarial training.", "high"),
            Column("ahead", "In percentage points.", "high"),
            Column("time", "Of all steps, over that of adversarial training.", "low"),
            Column("arithmetic", "Over that of adversarial training, counted.", "low"),
            Column("n", "Test images."),
        ),
        tuple(Row(_place(each), _cells(each)) for each in shown),
        of="goal and place",
    )


def place_name(data: str, threat: str, eps: float) -> str:
    """As "CIFAR-10, l∞ 8/255"."""
    return f"{_DATA.get(data, data)}, {THREATS[threat].symbol} {radius_name(eps)}"


def _place(contest: Contest) -> str:
    return f"{contest.goal.name}: {place_name(*KINDS[contest.kind])}"


def _line(goal: Goal, found: Iterable[Contest]) -> str:
    places = {contest.kind: contest.verdict for contest in found if contest.goal is goal}
    verdicts = set(places.values())
    # One place that is missed decides; one that lacks networks leaves it open.
    whole = MISSED if MISSED in verdicts else NOT_YET if NOT_YET in verdicts else HELD
    each = "; ".join(f"{place_name(*KINDS[kind])}: {verdict}" for kind, verdict in places.items())
    return f"- **{goal.name}: {whole}.** The goal: {goal.words}. {each}."


def _cells(contest: Contest) -> tuple[Cell, ...]:
    ours, theirs = contest.ours, contest.theirs
    what = Cell(contest.verdict, None, contest.note)
    figures: list[Cell] = []
    for kind in ("clean", "robust"):
        tables = [None if each is None else getattr(each, kind) for each in (ours, theirs)]
        figures += [NOTHING if table is None else accuracy(table) for table in tables]
        first, second = tables
        figures.append(NOTHING if first is None or second is None else ahead(first, second))
    one = ours or theirs
    assert one is not None
    if ours is None or theirs is None:
        return (what, *figures, NOTHING, NOTHING, count(one.images))
    cost = (
        ratio(contest.time, hours_text(ours, theirs)),
        ratio(ours.arithmetic_over(theirs), f"{_work(ours)} against {_work(theirs)}"),
    )
    return (what, *figures, *cost, count(one.images))


def _work(method: Method) -> str:
    return f"{method.epochs} epochs of {method.forwards:.1f}F"


def _check_place(name: str, method: Method) -> None:
    kind = name.rpartition("-")[0]
    if kind not in KINDS:
        raise DataError(f"{name} must be a row of results/goals.sh: {', '.join(KINDS)} with -at, -noisy or -cheap.")
    data, threat, eps = KINDS[kind]
    if method.networks[0].place != (data, threat, round(eps, 9)) or method.networks[0].split != "test":
        raise DataError(f"{name} must be judged on test images of {place_name(data, threat, eps)}.")
