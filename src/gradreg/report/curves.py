"""Error against distance, and the other pictures of an evaluation, as plain numbers that figures and the page draw."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gradreg.evaluation.record import Bounded, Evaluation, Examined, Smoothed
from gradreg.norms import ThreatName
from gradreg.report.compare import cost_ratio, with_distinct_names
from gradreg.report.numbers import STANDARD_RADII, clean_share, within

Kind = Literal["empirical", "omega-bound", "certified"]

_POINTS = 200
_DOTS = 300
# Distances are single precision: one of 8/255 exactly is not beyond 8/255, though as a double it is larger.
_SINGLE = 2.0**-23


@dataclass(frozen=True)
class Curve:
    """A step function: the share y[i] of images fails from x[i] on, until x[i + 1].

    At x[i] itself the attacks succeed, so an empirical curve is at y[i] there; a bound still holds, so the others are
    at y[i − 1]. A bound's curve ends where nothing was estimated or tested any more.
    """

    model: str
    kind: Kind
    threat: ThreatName
    x: tuple[float, ...]
    y: tuple[float, ...]
    n: int
    detail: str = ""
    """σ, for a certified curve."""

    def at(self, radius: float) -> float:
        """The error at that radius."""
        if self.kind == "empirical":
            reached = bisect_right(self.x, radius * (1 + _SINGLE))
        else:
            reached = bisect_left(self.x, radius * (1 - _SINGLE))
        return self.y[max(reached - 1, 0)]


@dataclass(frozen=True)
class Point:
    """What a model pays in clean error and training time, and what robustness it gets for it."""

    model: str
    clean_error: float
    robust_error: float
    cost_ratio: float | None
    hours: float | None
    threat: ThreatName
    radius: float


@dataclass(frozen=True)
class Histogram:
    """How many images were broken at which distance; every model's has the same edges."""

    model: str
    threat: ThreatName
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    misclassified: int
    unbroken: int
    n: int


@dataclass(frozen=True)
class Gap:
    """Each image's bounds against its distance: a dot above the diagonal is a violation."""

    model: str
    threat: ThreatName
    distance: tuple[float, ...]
    omega: tuple[float, ...]
    lipschitz: tuple[float, ...]
    n: int
    """Images broken and not misclassified; `distance` has an even choice of them if they are many."""


def curves(evaluations: Sequence[Evaluation]) -> list[Curve]:
    """Every model's curves, thinned to what the eye can tell: nowhere off by more than half a percent of error."""
    found = []
    for evaluation in with_distinct_names(evaluations):
        for examined in _in_order(evaluation):
            found += _of_threat(evaluation, examined)
        found += [_certified(evaluation, smoothed) for smoothed in evaluation.smoothing]
    return found


def frontier(evaluations: Sequence[Evaluation]) -> list[Point]:
    """A point for every model, threat and usual radius."""
    evaluations = with_distinct_names(evaluations)
    return [
        Point(
            evaluation.subject.name,
            clean_share(evaluation),
            float(within(examined.attacked.distance, radius).double().mean()),
            cost_ratio(evaluation, evaluations),
            evaluation.subject.hours,
            examined.threat,
            radius,
        )
        for evaluation in evaluations
        for examined in _in_order(evaluation)
        for radius in STANDARD_RADII[examined.threat]
    ]


def histogram(evaluations: Sequence[Evaluation], threat: ThreatName, bins: int = 30) -> list[Histogram]:
    """The distances of each model that was attacked in that threat, in bins of equal width."""
    found = [(e, e.threats[threat].attacked.distance) for e in with_distinct_names(evaluations) if threat in e.threats]
    finite = [distance[distance.isfinite()].double() for _, distance in found]
    end = max((float(distance.max()) for distance in finite if len(distance)), default=0.0) or 1.0
    edges = torch.linspace(0, end, bins + 1, dtype=torch.float64)
    return [
        Histogram(
            evaluation.subject.name,
            threat,
            tuple(edges.tolist()),
            tuple(_counts(broken[broken > 0], edges)),
            int((distance == 0).sum()),
            int((~distance.isfinite()).sum()),
            len(distance),
        )
        for (evaluation, distance), broken in zip(found, finite, strict=True)
    ]


def gaps(evaluations: Sequence[Evaluation]) -> list[Gap]:
    """Bounds and distances of the images that were broken, per model and threat where there are bounds."""
    return [
        _gap(evaluation.subject.name, examined, examined.bounded)
        for evaluation in with_distinct_names(evaluations)
        for examined in _in_order(evaluation)
        if examined.bounded is not None
    ]


def _gap(model: str, examined: Examined, bounded: Bounded) -> Gap:
    distance, omega = examined.attacked.distance, bounded.omega_bound
    rows = ((distance > 0) & distance.isfinite()).nonzero().flatten()
    rows = rows[distance[rows].argsort(stable=True)]
    chosen = _even(rows, _DOTS - 1)
    if len(rows) > len(chosen):
        # The worst image is never left out: if any bound is violated, the picture shows it.
        chosen = torch.cat([chosen, rows[(omega[rows] / distance[rows]).argmax()].view(1)]).unique()
    columns = (distance, omega, bounded.lipschitz_bound)
    x, y, z = (tuple(column[chosen].tolist()) for column in columns)
    return Gap(model, examined.threat, x, y, z, len(rows))


def _in_order(evaluation: Evaluation) -> list[Examined]:
    return [evaluation.threats[threat] for threat in STANDARD_RADII if threat in evaluation.threats]


def _of_threat(evaluation: Evaluation, examined: Examined) -> list[Curve]:
    name, n = evaluation.subject.name, len(evaluation)
    found = [Curve(name, "empirical", examined.threat, *_steps(examined.attacked.distance, float("inf")), n)]
    if examined.bounded is not None and examined.bounded.eps:
        steps = _steps(examined.bounded.omega_bound, examined.bounded.eps[-1])
        found.append(Curve(name, "omega-bound", examined.threat, *steps, n))
    return found


def _certified(evaluation: Evaluation, smoothed: Smoothed) -> Curve:
    # Whatever has not the right class fails at every radius, 0 included.
    radius = smoothed.radius.double().where(smoothed.prediction == evaluation.label, 0.0)
    steps = _steps(radius, smoothed.radii[-1] if smoothed.radii else float("inf"))
    return Curve(evaluation.subject.name, "certified", "l2", *steps, len(evaluation), f"σ = {smoothed.sigma:g}")


def _steps(values: Tensor, end: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The share of values ≤ x at every x where it rises; from `end` on nothing is known, so the curve stops there."""
    n = len(values)
    finite = values[values.isfinite()].clamp(min=0).double()
    xs, counts = finite.unique(sorted=True, return_counts=True)
    steps = list(zip(xs.tolist(), counts.cumsum(0).tolist(), strict=True))
    if not steps or steps[0][0] > 0:
        steps.insert(0, (0.0, 0))
    kept = _thinned([step for step in steps if step[0] < end or step[0] == 0], n)
    if end < float("inf") and kept[-1][0] < end and kept[-1][1] < n:
        kept.append((end, kept[-1][1]))
    return tuple(x for x, _ in kept), tuple(count / n for _, count in kept)


def _thinned(steps: list[tuple[float, int]], n: int) -> list[tuple[float, int]]:
    """Leave out a step while the curve is within 0.5 % of it without; at most 200 rises of more than that fit in 1."""
    if len(steps) < _POINTS:
        return steps
    kept = [steps[0]]
    for step in steps[1:]:
        if (step[1] - kept[-1][1]) * _POINTS > n:
            kept.append(step)
    return kept


def _counts(values: Tensor, edges: Tensor) -> list[int]:
    # Bins are closed on the right, so that the largest distance is in the last.
    bins = torch.bucketize(values, edges[1:]).clamp(max=len(edges) - 2)
    counted: list[int] = torch.bincount(bins, minlength=len(edges) - 1).tolist()
    return counted


def _even(rows: Tensor, most: int) -> Tensor:
    if len(rows) <= most:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, most, dtype=torch.float64).round().long()]
