"""Records of `python -m bench verdict`: read, checked, and put together by the method that trained the networks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from bench.arithmetic import step_forwards
from bench.recipe import training_steps
from bench.verdict import BROKEN, ROBUST, WRONG
from docs.make.measured import written_by
from docs.make.times import StepTimes
from gradreg.config.fractions import fraction
from gradreg.display.numbers import percent
from gradreg.errors import DataError
from gradreg.reading import read_json
from gradreg.report.tables.contrast import difference, points
from gradreg.report.tables.layout import NOTHING, Cell
from gradreg.report.tables.settings import Flat, flat

SEEDS = (0, 1, 2)
ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """One network: which images it classifies correctly, and which still under attack."""

    name: str
    recipe: Mapping[str, Any]
    threat: str
    eps: float
    split: str
    images: str
    """Which ones, in words."""
    letters: str
    hours: float | None
    machine: str | None
    commit: str
    times: StepTimes
    """Of training steps, its own among them if it was measured."""

    @property
    def method(self) -> str:
        """The name without the seed."""
        return self.name.rpartition("-seed")[0] or self.name

    @property
    def seed(self) -> int:
        """That it was trained with."""
        return int(self.recipe.get("seed", 0))

    @property
    def place(self) -> tuple[str, str, float]:
        """Data, threat and radius: figures of different places are not compared."""
        return str(self.recipe["data"]), self.threat, round(self.eps, 9)

    @property
    def settings(self) -> Flat:
        """What it was trained with, but for the seed."""
        return {key: value for key, value in flat(self.recipe).items() if key != "seed"}

    @property
    def clean(self) -> float:
        """Fraction of images that are classified correctly."""
        return 1 - self.letters.count(WRONG) / len(self.letters)

    @property
    def robust(self) -> float:
        """Fraction of images that still are under attack."""
        return self.letters.count(ROBUST) / len(self.letters)


def read_verdicts(patterns: Sequence[str], root: Path) -> list[Verdict]:
    """The records that the patterns match, in the order of the patterns, then the alphabet; maybe none yet."""
    files = dict.fromkeys(file for pattern in patterns for file in sorted(root.glob(pattern)))
    times = StepTimes.of(root)
    return [_read(file, times) for file in files]


@dataclass(frozen=True)
class Method:
    """The networks that a method trained, one per seed."""

    name: str
    networks: tuple[Verdict, ...]

    def __post_init__(self) -> None:
        first = self.networks[0]
        for other in self.networks:
            if other.settings != first.settings or other.place != first.place:
                raise DataError(f"{other.name} must differ from {first.name} in the seed alone to be a row with it.")
            if len(other.letters) != len(first.letters):
                raise DataError(
                    f"{other.name} must be judged on as many images as {first.name}, {len(first.letters)}; "
                    f"got {len(other.letters)}."
                )
        if len(set(self.seeds)) < len(self.seeds):
            raise DataError(f"The networks of {self.name} must have seeds of their own; got {self.seeds}.")

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of its networks, in order."""
        return tuple(network.seed for network in self.networks)

    @property
    def images(self) -> int:
        """That each was judged on."""
        return len(self.networks[0].letters)

    @cached_property
    def clean(self) -> Tensor:
        """1 where an image is classified correctly, seeds by images."""
        return self._marked(ROBUST + BROKEN)

    @cached_property
    def robust(self) -> Tensor:
        """1 where it still is under attack."""
        return self._marked(ROBUST)

    @property
    def epochs(self) -> int:
        """That each was trained for."""
        return int(self.networks[0].recipe["epochs"])

    @cached_property
    def forwards(self) -> float:
        """Arithmetic of a step, in forwards of the network."""
        return step_forwards(self.networks[0].recipe)

    @property
    def hours(self) -> float | None:
        """Of training, the mean over seeds; None if a network has no record of them."""
        known = [network.hours for network in self.networks if network.hours]
        return mean(known) if len(known) == len(self.networks) else None

    @cached_property
    def step_time(self) -> float | None:
        """All steps of a training, in seconds, by the time of one that was measured; None if it was not."""
        recipe = self.networks[0].recipe
        seconds = self.networks[0].times.seconds(recipe)
        return None if seconds is None else seconds * training_steps(recipe)

    def time_over(self, other: "Method") -> float | None:
        """Time of all steps over the other's; None if one of them was not measured."""
        if self.step_time is None or other.step_time is None:
            return None
        return self.step_time / other.step_time

    def arithmetic_over(self, other: "Method") -> float:
        """Arithmetic of the whole training over the other's."""
        return self.forwards * self.epochs / (other.forwards * other.epochs)

    def _marked(self, letters: str) -> Tensor:
        return torch.tensor([[float(each in letters) for each in network.letters] for network in self.networks])


def by_method(verdicts: Iterable[Verdict]) -> dict[str, Method]:
    """All seeds of a method together."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.method, []).append(verdict)
    return {name: Method(name, tuple(sorted(each, key=lambda one: one.seed))) for name, each in found.items()}


def accuracy(marked: Tensor) -> Cell:
    """Mean over seeds, and the range over them."""
    means = marked.mean(1).tolist()
    note = f"{percent(min(means))}–{percent(max(means))}".replace(" %", "") if len(means) > 1 else ""
    return Cell(percent(mean(means)), mean(means), note)


def ahead(first: Tensor, second: Tensor) -> Cell:
    """How far the first is ahead, in percentage points, with the interval over images and, but if it says so, seeds."""
    if first.shape[1] != second.shape[1]:
        raise DataError(f"Methods must be judged on the same images; got {first.shape[1]} and {second.shape[1]}.")
    found = points(difference(first, second))
    return replace(found, note=found.note.removesuffix(", images and seeds"))


def ratio(value: float | None, note: str = "") -> Cell:
    """As 0.34×; the note is there even if the ratio is not known."""
    return replace(NOTHING, note=note) if value is None else Cell(f"{value:.2f}×", value, note)


def hours_text(*methods: Method) -> str:
    """As "0.40 h against 1.00 h", of those that have a record of them."""
    return " against ".join(f"{each.hours:.2f} h" for each in methods if each.hours)


def about(verdicts: Iterable[Verdict]) -> str:
    """The machines and commits that figures come from."""
    found = list(verdicts)
    machines = ", ".join(sorted({each.machine for each in found if each.machine})) or "an unknown machine"
    commits = ", ".join(sorted({each.commit for each in found if each.commit})) or "unknown"
    return f"Trained on {machines}; judged at commit {commits}."


def about_with_times(verdicts: Sequence[Verdict]) -> str:
    """The same, and how their steps were timed."""
    return f"{about(verdicts)} {verdicts[0].times.about}"


def _read(path: Path, times: StepTimes) -> Verdict:
    with written_by("verdict", path, "--out"):
        found = read_json(path)
        options, recipe, letters = found["options"], found["recipe"], str(found["verdicts"])
        eps = fraction(str(options["eps"]))
        if eps is None or not letters or set(letters) - {WRONG, BROKEN, ROBUST} or len(letters) != found["n"]:
            raise ValueError("its radius or its verdicts cannot be read")
        verdict = Verdict(
            str(found["model"]),
            recipe,
            str(options["threat"]),
            eps,
            str(options["split"]),
            str(found["images"]),
            letters,
            None if found["hours"] is None else float(found["hours"]),
            found["trained on"],
            str(found["machine"]["commit"]),
            times,
        )
        if abs(verdict.clean - found["clean"]) > ROUNDING or abs(verdict.robust - found["robust"]) > ROUNDING:
            raise ValueError("its accuracies are not those of its verdicts")
        if found["epochs"] != recipe["epochs"]:
            raise ValueError(f"it was judged after {found['epochs']} of {recipe['epochs']} epochs")
    return verdict
