"""Which evaluations may stand side by side, and what a reader must know about how they differ."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from gradreg.errors import DataError
from gradreg.evaluation.record import Evaluation
from gradreg.report.seeds import training_seed


def check_comparable(evaluations: Sequence[Evaluation]) -> list[str]:
    """Refuse what no table can compare; of what only weakens a comparison, one sentence each."""
    if not evaluations:
        raise DataError("There is no evaluation to report on: name at least one that `gradreg evaluate` wrote.")
    evaluations = with_distinct_names(evaluations)
    first = evaluations[0]
    for evaluation in evaluations:
        if len(evaluation) == 0:
            raise DataError(f"The evaluation of {evaluation.subject.name!r} holds no images, so it has no figures.")
    for other in evaluations[1:]:
        _check_same_data(first, other)
    return [*_selections(evaluations), *_settings(evaluations)]


def with_distinct_names(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The second of two models of the same name gets " (2)"."""
    taken: set[str] = set()
    distinct = []
    for evaluation in evaluations:
        name, count = evaluation.subject.name, 1
        while name in taken:
            count += 1
            name = f"{evaluation.subject.name} ({count})"
        taken.add(name)
        same = name == evaluation.subject.name
        distinct.append(evaluation if same else replace(evaluation, subject=replace(evaluation.subject, name=name)))
    return distinct


def cost_ratio(evaluation: Evaluation, evaluations: Sequence[Evaluation]) -> float | None:
    """Training hours over those of an undefended model of the same architecture and number of epochs on the same kind
    of machine: the one of the same seed, which was likely trained in the same sitting, or else the first."""
    subject = evaluation.subject
    if subject.hours is None or subject.epochs is None:
        return None
    place = _circumstances(evaluation)
    hours_by_seed: dict[int, float] = {}
    for other in evaluations:
        hours = other.subject.hours if other.subject.objective == "undefended" else None
        if hours and _circumstances(other) == place:
            hours_by_seed.setdefault(training_seed(other), hours)
    if not hours_by_seed:
        return None
    return subject.hours / hours_by_seed.get(training_seed(evaluation), next(iter(hours_by_seed.values())))


def _circumstances(evaluation: Evaluation) -> tuple[str, int | None, str]:
    """What hours depend on. A run that did not write down its machine was likely examined where it was trained."""
    subject = evaluation.subject
    return subject.architecture, subject.epochs, subject.machine or evaluation.origin.machine


def _check_same_data(first: Evaluation, other: Evaluation) -> None:
    one, two = first.data, other.data
    pair = f"{first.subject.name!r} was evaluated on {one.name} and {other.subject.name!r} on {two.name}"
    if one.name != two.name:
        raise DataError(f"{pair}, so their errors cannot be compared; write one report for each data set.")
    if one.classes != two.classes or one.shape != two.shape:
        raise DataError(
            f"{pair}, but once with {len(one.classes)} classes of images of shape {one.shape} and once with "
            f"{len(two.classes)} of shape {two.shape}, or under other names; evaluate both on the same data."
        )


def _selections(evaluations: Sequence[Evaluation]) -> list[str]:
    first = evaluations[0]
    chosen = first.index.sort().values
    differing = [other.subject.name for other in evaluations[1:] if not torch.equal(chosen, other.index.sort().values)]
    if not differing:
        return []
    return [
        f"{_listed(differing)} {_were(differing)} examined on other images of {first.data.name} than "
        f"{first.subject.name}, so small differences may come from the choice; the intervals tell how much."
    ]


def _settings(evaluations: Sequence[Evaluation]) -> list[str]:
    notes = []
    for asked, what in (("attacks", "attacks"), ("regularity", "method for the bounds"), ("topk", "top-k")):
        values = {str(getattr(evaluation.settings, asked)) for evaluation in evaluations}
        if len(values) > 1:
            each = "; ".join(f"{e.subject.name}: {getattr(e.settings, asked)}" for e in evaluations)
            notes.append(f"Not all models were examined with the same {what} ({each}).")
    return notes


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _were(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"
