"""What changed between two evaluations of a model, and whether it is more than chance.

The same images are compared one by one. At each radius an exact McNemar test asks whether the images that were lost and
those that were gained are a fair split; Holm's correction accounts for asking at several radii and in several threats.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gradreg.display.numbers import listed, percent, significant
from gradreg.errors import DataError
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.shares import top_k
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import ball
from gradreg.report.tables.paired import pixels_of, shared, sign_test
from gradreg.report.tables.settings import UNKNOWN, differences, flat, setting, short

_LEVEL = 0.05
# Relative; the same attack on another machine rounds a distance differently by less.
_SAME = 1e-4
# Options that change no result, and facts that always differ.
_NO_MATTER = ("batch_size", "created", "hours")


@dataclass(frozen=True)
class Change:
    """Images that are right before and after, clean (radius 0) or within a radius."""

    threat: str
    """Empty for clean accuracy."""
    symbol: str
    radius: float
    before: float
    after: float
    lost: int
    gained: int
    n: int
    p: float
    """Of the exact McNemar test, two-sided."""
    corrected: float = 1.0
    """By Holm, for all changes of the comparison together."""

    @property
    def where(self) -> str:
        """ "clean", or the radius with its norm."""
        return ball(self.symbol, self.radius) if self.threat else "clean"

    @property
    def beyond_chance(self) -> bool:
        """At the level 5 %, all comparisons together."""
        return self.corrected <= _LEVEL


@dataclass(frozen=True)
class Difference:
    """Two evaluations, before and after, on the images that both looked at; `Difference.of` checks them."""

    comparison: Comparison
    """Both evaluations whole, for charts."""
    rows: tuple[Tensor, Tensor]
    """Positions of the common images in the one and in the other."""

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> "Difference":
        """Refuse what is not two evaluations of the same data with an image and a threat in common."""
        if len(evaluations) != 2:
            raise DataError(f"A difference is between two evaluations, before and after; got {len(evaluations)}.")
        one, two = evaluations
        if one.subject.name == two.subject.name:
            named = [(one, "before"), (two, "after")]
            one, two = (replace(e, subject=replace(e.subject, name=f"{e.subject.name}, {when}")) for e, when in named)
        comparison = Comparison.of([one, two])
        rows = shared(one, two)
        if not len(rows[0]):
            raise DataError(
                "The two evaluations must have images in common; got none. Evaluate both with the same --seed."
            )
        _check_same_images(one, two, rows)
        return cls(comparison, rows)

    @property
    def before(self) -> Evaluation:
        """The evaluation named first."""
        return self.comparison.evaluations[0]

    @property
    def after(self) -> Evaluation:
        """The evaluation named second."""
        return self.comparison.evaluations[1]

    @property
    def threats(self) -> tuple[str, ...]:
        """Those of both."""
        return tuple(threat for threat in self.comparison.threats if len(self.comparison.under(threat)) == 2)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Clean, then at the usual radii of every threat of both."""
        wrong = (each.wrong[rows] for each, rows in zip((self.before, self.after), self.rows, strict=True))
        found = [_change("", "", 0.0, *(~each for each in wrong))]
        for threat in self.threats:
            symbol = self.comparison.symbol(threat)
            found += [
                _change(threat, symbol, radius, *self.robust(threat, radius))
                for radius in self.comparison.radii(threat)
            ]
        return tuple(_corrected(found))

    def robust(self, threat: str, radius: float) -> tuple[Tensor, Tensor]:
        """Common images that are robust at the radius, before and after."""
        pairs = zip((self.before, self.after), self.rows, strict=True)
        first, second = (each.threats[threat].robust(radius)[rows] for each, rows in pairs)
        return first, second

    def distances(self, threat: str) -> tuple[Tensor, Tensor]:
        """Of the common images, before and after."""
        pairs = zip((self.before, self.after), self.rows, strict=True)
        first, second = (each.threats[threat].distance[rows].double() for each, rows in pairs)
        return first, second

    def moved(self, threat: str) -> tuple[int, int]:
        """Images whose adversarial image is nearer, and whose it is farther, by more than rounding."""
        before, after = self.distances(threat)
        # Unbroken twice is the same; inf − inf would be no number.
        gap = torch.where(before == after, 0.0, after - before)
        limit = _SAME * torch.minimum(before, after)
        return int((gap < -limit).sum()), int((gap > limit).sum())

    def settings(self) -> list[tuple[str, str, str]]:
        """What differs between the two besides the figures: name, before, after."""
        before, after = (dict(_facts(each)) for each in (self.before, self.after))
        names = dict.fromkeys((*before, *after))
        pairs = [(name, before.get(name, UNKNOWN), after.get(name, UNKNOWN)) for name in names]
        recipes = [flat(each.subject.recipe or {}) for each in (self.before, self.after)]
        # Of objectives of two kinds only the kind, since one has options that the other has not.
        trained = [
            (f"training: {short(key)}", *(setting(key, recipe.get(key)) for recipe in recipes))
            for key in differences(recipes[1], recipes[0])
        ]
        return [(name, old, new) for name, old, new in (*pairs, *trained) if old != new]

    def sentences(self) -> list[str]:
        """The answer in words: every change beyond chance, or that there is none."""
        found = [_said(change, len(self.changes)) for change in self.changes if change.beyond_chance]
        if not found:
            lost, gained = (sum(getattr(each, name) for each in self.changes) for name in ("lost", "gained"))
            same = "Nothing changed" if lost + gained == 0 else "No accuracy changed by more than chance"
            radii = f" and at {len(self.changes) - 1} radii" if self.threats else "; they have no threat in common"
            found = [f"{same} on {len(self.rows[0]):,} images, clean{radii}."]
        differing = [name for name, *_ in self.settings()]
        told = f"Settings that differ: {listed(differing)}." if differing else "Both have the same settings."
        return [top_k(sentence, self.comparison.topk) for sentence in found] + [told]


def _check_same_images(one: Evaluation, two: Evaluation, rows: tuple[Tensor, Tensor]) -> None:
    """Images are compared by their positions: other labels or pixels there are other images, whatever they are called.

    Data sets that are read by name are known by it, and files of before pixels were kept by nothing else.
    """
    before, after = one.label[rows[0]], two.label[rows[1]]
    others = (before != after).nonzero().flatten().tolist()
    if others:
        first = others[0]
        raise DataError(
            f"The two evaluations must be of the same images; got {len(others)} of {len(before)} with other labels, "
            f"image {int(one.index[rows[0]][first])} with {int(before[first])} and then {int(after[first])}: "
            "evaluate both on the same data, in the same order."
        )
    if one.data.pixels and two.data.pixels:
        other = int((pixels_of(one, rows[0]) != pixels_of(two, rows[1])).sum())
        if other:
            raise DataError(
                f"The two evaluations must be of the same images; got {other} of {len(before)} with other pixels: "
                "evaluate both on the same data, in the same order."
            )


def _change(threat: str, symbol: str, radius: float, before: Tensor, after: Tensor) -> Change:
    lost, gained = int((before & ~after).sum()), int((after & ~before).sum())
    old, new = (float(each.double().mean()) for each in (before, after))
    return Change(threat, symbol, radius, old, new, lost, gained, len(before), sign_test(lost, gained))


def _corrected(changes: Sequence[Change]) -> list[Change]:
    """Holm: the k-th smallest of m values of p is multiplied by m − k + 1, and none is below one before it."""
    order = sorted(range(len(changes)), key=lambda i: changes[i].p)
    corrected, last = [1.0] * len(changes), 0.0
    for rank, i in enumerate(order):
        last = corrected[i] = max(last, min(1.0, (len(changes) - rank) * changes[i].p))
    return [replace(change, corrected=p) for change, p in zip(changes, corrected, strict=True)]


def _said(change: Change, among: int) -> str:
    what = "Robust accuracy at " + change.where if change.threat else "Clean accuracy"
    moved = "rose" if change.after > change.before else "fell"
    return (
        f"{what} {moved} from {percent(change.before)} to {percent(change.after)} on {change.n:,} images: "
        f"{change.lost} were lost and {change.gained} gained, more than chance (exact McNemar test, "
        f"p = {significant(change.corrected)} corrected for {among} comparisons)."
    )


def _facts(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Settings of the evaluation, the code and the network, as text."""
    settings, subject = evaluation.settings, evaluation.subject
    options: Mapping[str, Any] = settings.options or {
        name: value for name, value in asdict(settings).items() if name != "options"
    }
    yield "images evaluated", f"{len(evaluation):,} of {evaluation.data.images:,}"
    yield from ((name, str(value)) for name, value in options.items() if name not in _NO_MATTER and name != "images")
    yield from ((name, str(value)) for name, value in asdict(evaluation.origin).items() if name not in _NO_MATTER)
    yield "network", f"{subject.architecture}, {subject.parameters:,} parameters"
    yield "training: epochs done", UNKNOWN if subject.epochs is None else str(subject.epochs)
