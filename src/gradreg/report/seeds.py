"""Which evaluations are of one recipe, trained more than once."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gradreg.evaluation.record import Evaluation


@dataclass(frozen=True)
class Trained:
    """The evaluations of one recipe, which differ in the seed of the training only."""

    name: str
    evaluations: tuple[Evaluation, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """In rising order."""
        return tuple(sorted(map(training_seed, self.evaluations)))


def by_recipe(evaluations: Sequence[Evaluation]) -> list[Trained]:
    """Evaluations whose recipes are the same but for the seed, under the longest beginning of all their names."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        recipe = evaluation.subject.recipe
        # What was not trained here has no recipe, and is its own.
        key = json.dumps({**recipe, "seed": 0}, sort_keys=True) if recipe else evaluation.subject.name
        groups.setdefault(key, []).append(evaluation)
    return [Trained(_shared([each.subject.name for each in group]), tuple(group)) for group in groups.values()]


def training_seed(evaluation: Evaluation) -> int:
    """The seed of the training, 0 for what was trained elsewhere."""
    return int((evaluation.subject.recipe or {}).get("seed", 0))


def _shared(names: Sequence[str]) -> str:
    """The longest common beginning, without what joins it to a seed; a single name as it is."""
    if len(names) == 1:
        return names[0]
    first, last = min(names), max(names)
    same = next((i for i, sign in enumerate(first) if last[i : i + 1] != sign), len(first))
    return first[:same].removesuffix("seed").rstrip("-_ .") or first
