"""Evaluations side by side, prepared once: what cannot be compared is refused, models get distinct names."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gradreg.display.numbers import listed
from gradreg.errors import DataError
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.norms import THREATS
from gradreg.report import threats


@dataclass(frozen=True)
class Recipe:
    """The evaluations of one recipe, whose trainings differ in the seed only; there is one of each seed."""

    name: str
    evaluations: tuple[Evaluation, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """In rising order."""
        return tuple(sorted(map(training_seed, self.evaluations)))


@dataclass(frozen=True)
class Comparison:
    """What every table, chart and part of the page is made from; `Comparison.of` checks and prepares it."""

    evaluations: tuple[Evaluation, ...]
    """Under distinct names, each with its threats in the usual order."""
    notes: tuple[str, ...]
    """How the evaluations differ in ways that weaken the comparison, one sentence each."""

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> "Comparison":
        """Refuse what no table can compare; note what only weakens a comparison."""
        if not evaluations:
            raise DataError("There is no evaluation to report on: name at least one that `gradreg evaluate` wrote.")
        prepared = threats.prepared(_with_distinct_names(evaluations))
        for evaluation in prepared:
            if len(evaluation) == 0:
                raise DataError(f"The evaluation of {evaluation.subject.name!r} must hold at least one image; got 0.")
            _check_same_data(prepared[0], evaluation)
            _check_same_top_k(prepared[0], evaluation)
        return cls(prepared, (*_top_k(prepared[0]), *_selections(prepared), *_settings(prepared)))

    @property
    def topk(self) -> int:
        """An image counts as right while its label is among this many largest logits; the same for all models."""
        return self.evaluations[0].settings.topk

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The models' names, in the order given; a model's place is its colour and marker."""
        return tuple(evaluation.subject.name for evaluation in self.evaluations)

    @cached_property
    def threats(self) -> tuple[str, ...]:
        """Those that any model was evaluated under, in the usual order."""
        return threats.in_order(self.evaluations)

    def radii(self, threat: str) -> tuple[float, ...]:
        """Where robust accuracy is quoted on these images."""
        return self._first(threat).data.usual_radii(threat)

    def main_radius(self, threat: str) -> float:
        """The radius that models are compared at."""
        return self._first(threat).data.usual_radius(threat)

    def in_255(self, threat: str) -> bool:
        """Whether distances are counted in 1/255: in l∞, where the radius that models are compared at is so many."""
        steps = 255 * self.main_radius(threat) if threat == "linf" else 0.5
        return abs(steps - round(steps)) < 1e-6

    def _first(self, threat: str) -> Evaluation:
        return next((each for each in self.evaluations if threat in each.threats), self.evaluations[0])

    def symbol(self, threat: str) -> str:
        """The norm as it is written; two norms of one report are never written alike."""
        found = self.under(threat)
        return found[0][1].symbol if found else THREATS[threat].symbol

    def under(self, threat: str) -> list[tuple[Evaluation, ThreatRecord]]:
        """The models that were evaluated under that threat, with what was found."""
        return [(each, each.threats[threat]) for each in self.evaluations if threat in each.threats]

    def cost_ratio(self, evaluation: Evaluation) -> float | None:
        """Training hours over those of an undefended model of the same architecture, epochs and kind of machine.

        That of the same seed, which was likely trained in the same session, or else the first; None without one.
        """
        subject = evaluation.subject
        if subject.hours is None or subject.epochs is None:
            return None
        hours_by_seed: dict[int, float] = {}
        for other in self.evaluations:
            hours = other.subject.hours if other.subject.objective == "undefended" else None
            if hours and _circumstances(other) == _circumstances(evaluation):
                hours_by_seed.setdefault(training_seed(other), hours)
        if not hours_by_seed:
            return None
        return subject.hours / hours_by_seed.get(training_seed(evaluation), next(iter(hours_by_seed.values())))

    def recipes(self, threat: str | None = None) -> list[Recipe]:
        """Models grouped by recipe, seeds aside, under the common beginning of their names; of one threat if given.

        A second evaluation of one seed, as of a run's last weights or of a copy, is no second training: it belongs to
        another group.
        """
        groups: dict[tuple[str, int], list[Evaluation]] = {}
        trained: Counter[tuple[str, int]] = Counter()
        for evaluation in self.evaluations:
            if threat is None or threat in evaluation.threats:
                recipe = evaluation.subject.recipe
                # A model that was not trained here has no recipe, and is a group of its own.
                key = json.dumps({**recipe, "seed": 0}, sort_keys=True) if recipe else evaluation.subject.name
                of_seed = key, training_seed(evaluation)
                groups.setdefault((key, trained[of_seed]), []).append(evaluation)
                trained[of_seed] += 1
        return [Recipe(_common_name([each.subject.name for each in group]), tuple(group)) for group in groups.values()]


def training_seed(evaluation: Evaluation) -> int:
    """The seed of the training, 0 for a model that was trained elsewhere."""
    return int((evaluation.subject.recipe or {}).get("seed", 0))


def _with_distinct_names(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The second of two models of the same name gets " (2)"."""
    taken: set[str] = set()
    distinct = []
    for evaluation in evaluations:
        name, count = evaluation.subject.name, 1
        while name in taken:
            count += 1
            name = f"{evaluation.subject.name} ({count})"
        taken.add(name)
        distinct.append(replace(evaluation, subject=replace(evaluation.subject, name=name)))
    return distinct


def _circumstances(evaluation: Evaluation) -> tuple[str, int | None, str]:
    """What hours depend on. A run without a record of its machine was likely evaluated where it was trained."""
    subject = evaluation.subject
    return subject.architecture, subject.epochs, subject.machine or evaluation.origin.machine


def _check_same_data(first: Evaluation, other: Evaluation) -> None:
    one, two = first.data, other.data
    pair = f"{first.subject.name!r} was evaluated on {one.name} and {other.subject.name!r} on {two.name}"
    if one.name != two.name:
        raise DataError(f"{pair}, so their accuracies cannot be compared; write one report for each data set.")
    if one.classes != two.classes or one.shape != two.shape:
        raise DataError(
            f"{pair}, once with {len(one.classes)} classes of images of shape {one.shape} and once with "
            f"{len(two.classes)} of shape {two.shape}, or under other names; evaluate both on the same data."
        )


def _check_same_top_k(first: Evaluation, other: Evaluation) -> None:
    one, two = first.settings.topk, other.settings.topk
    if one != two:
        raise DataError(
            f"{first.subject.name!r} was evaluated for top-{one} and {other.subject.name!r} for top-{two}, so their "
            "accuracies cannot stand in one column; write one report for each."
        )


def _top_k(evaluation: Evaluation) -> list[str]:
    k = evaluation.settings.topk
    return [f"Accuracy is top-{k} accuracy: right is an image whose label is among the {k} largest logits."] * (k > 1)


def _selections(evaluations: Sequence[Evaluation]) -> list[str]:
    first = evaluations[0]
    differing = [other.subject.name for other in evaluations[1:] if not _same_images(first, other)]
    if not differing:
        return []
    names = listed(differing)
    return [
        f"{names} {'was' if len(differing) == 1 else 'were'} evaluated on other images of {first.data.name} than "
        f"{first.subject.name}, so small differences may be due to the choice of images; see the intervals."
    ]


def _same_images(one: Evaluation, two: Evaluation) -> bool:
    """By their positions in the data, and by their pixels where both have kept what these are known by."""
    kept = bool(one.data.pixels and two.data.pixels)
    first, second = (
        sorted(zip(each.index.tolist(), each.data.pixels if kept else each.index.tolist(), strict=True))
        for each in (one, two)
    )
    return first == second


def _settings(evaluations: Sequence[Evaluation]) -> list[str]:
    asked: tuple[tuple[str, Callable[[Evaluation], object]], ...] = (
        ("attacks", lambda each: each.settings.attacks),
        ("method for the bounds", lambda each: each.settings.regularity),
    )
    notes = []
    for what, value in asked:
        if len({value(each) for each in evaluations}) > 1:
            values = "; ".join(f"{each.subject.name}: {value(each)}" for each in evaluations)
            notes.append(f"Not all models were evaluated with the same {what} ({values}).")
    return notes


def _common_name(names: Sequence[str]) -> str:
    """The longest common beginning, without what joins it to a seed; a single name as it is."""
    if len(names) == 1:
        return names[0]
    first, last = min(names), max(names)
    same = next((i for i, sign in enumerate(first) if last[i : i + 1] != sign), len(first))
    return first[:same].removesuffix("seed").rstrip("-_ .") or first
