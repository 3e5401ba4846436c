"""Accuracy against distance and what else charts show of an evaluation, as plain numbers."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gradreg.display.curves import steps
from gradreg.evaluation.record import Bounded, Evaluation, Smoothed, ThreatRecord
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import clean_accuracy

_CurveKind = Literal["empirical", "calibrated", "omega-bound", "certified"]

_DOTS = 300


@dataclass(frozen=True)
class Curve:
    """A step function: from x[i] on, until x[i + 1], the accuracy is y[i].

    At x[i] itself the attacks succeed, so an empirical curve is at y[i] there; a bound still holds, so the others are
    at y[i − 1]. A bound's curve ends where nothing was estimated or tested any more.
    """

    model: str
    kind: _CurveKind
    threat: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    detail: str = ""
    """σ, for a certified curve; α, for a calibrated one."""


@dataclass(frozen=True)
class Point:
    """Clean accuracy, robust accuracy at a radius and cost of training of a model."""

    model: str
    clean: float
    robust: float
    cost_ratio: float | None
    hours: float | None


@dataclass(frozen=True)
class Histogram:
    """Images by distance; every model's histogram of a threat has the same edges."""

    model: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    misclassified: int
    unbroken: int
    n: int


@dataclass(frozen=True)
class Gap:
    """Each image's ω-bound against its distance: above the diagonal the bound is violated."""

    model: str
    distance: tuple[float, ...]
    omega: tuple[float, ...]
    n: int
    """Images broken and not misclassified; `distance` has an even selection of them if they are many."""


def curves(comparison: Comparison, threat: str) -> list[Curve]:
    """Every model's curves, thinned to what the eye can tell: nowhere off by more than half a percent of images."""
    found = []
    for evaluation in comparison.evaluations:
        if threat in evaluation.threats:
            found += _of_threat(evaluation, evaluation.threats[threat])
        if threat == "l2":
            found += [_certified(evaluation, smoothed) for smoothed in evaluation.smoothing]
    return found


def points(comparison: Comparison, threat: str, radius: float) -> list[Point]:
    """One per model."""
    found = []
    for evaluation, record in comparison.under(threat):
        robust, ratio = record.robust_accuracy(radius).value, comparison.cost_ratio(evaluation)
        clean = clean_accuracy(evaluation).value
        found.append(Point(evaluation.subject.name, clean, robust, ratio, evaluation.subject.hours))
    return found


def histograms(comparison: Comparison, threat: str, bins: int = 30) -> list[Histogram]:
    """The distances of each model, in bins of equal width."""
    found = [(evaluation.subject.name, record.distance) for evaluation, record in comparison.under(threat)]
    finite = [distance[distance.isfinite()].double() for _, distance in found]
    end = max((float(distance.max()) for distance in finite if len(distance)), default=0.0) or 1.0
    edges = torch.linspace(0, end, bins + 1, dtype=torch.float64, device="cpu")
    return [
        Histogram(
            model,
            tuple(edges.tolist()),
            tuple(_counts(broken[broken > 0], edges)),
            int((distance == 0).sum()),
            int((~distance.isfinite()).sum()),
            len(distance),
        )
        for (model, distance), broken in zip(found, finite, strict=True)
    ]


def gaps(comparison: Comparison, threat: str) -> list[Gap]:
    """Bounds and distances of the images that were broken, per model that has bounds and broken images."""
    found = [
        _gap(evaluation.subject.name, record, record.bounded)
        for evaluation, record in comparison.under(threat)
        if record.bounded is not None
    ]
    return [gap for gap in found if gap.n]


def thinned(length: int, most: int) -> list[int]:
    """Evenly spread positions, the first and the last among them."""
    if length <= most:
        return list(range(length))
    return [round(i * (length - 1) / (most - 1)) for i in range(most)]


def _gap(model: str, record: ThreatRecord, bounded: Bounded) -> Gap:
    distance, omega = record.distance, bounded.omega_bound
    rows = ((distance > 0) & distance.isfinite()).nonzero().flatten()
    rows = rows[distance[rows].argsort(stable=True)]
    chosen = rows[thinned(len(rows), _DOTS - 1)]
    if len(rows) > len(chosen):
        # The worst image is never left out: if any bound is violated, the picture shows it.
        chosen = torch.cat([chosen, rows[(omega[rows] / distance[rows]).argmax()].view(1)]).unique()
    return Gap(model, tuple(distance[chosen].tolist()), tuple(omega[chosen].tolist()), len(rows))


def _of_threat(evaluation: Evaluation, record: ThreatRecord) -> list[Curve]:
    name = evaluation.subject.name
    found = [Curve(name, "empirical", record.threat, *steps(record.distance, float("inf")))]
    if record.bounded is not None and record.bounded.eps:
        course = steps(record.bounded.omega_bound, record.bounded.eps[-1])
        found.append(Curve(name, "omega-bound", record.threat, *course))
    if record.bounded is not None and record.bounded.calibrated is not None:
        facts = record.bounded.calibrated
        course = steps(facts.bound, record.bounded.eps[-1] / facts.scale)
        found.append(Curve(name, "calibrated", record.threat, *course, f"α = {facts.alpha:g}"))
    return found


def _certified(evaluation: Evaluation, smoothed: Smoothed) -> Curve:
    # An image without the correct class fails at every radius, 0 included.
    radius = smoothed.radius.double().where(smoothed.prediction == evaluation.label, 0.0)
    course = steps(radius, smoothed.radii[-1] if smoothed.radii else float("inf"))
    return Curve(evaluation.subject.name, "certified", "l2", *course, f"σ = {smoothed.sigma:g}")


def _counts(values: Tensor, edges: Tensor) -> list[int]:
    # Bins are closed on the right, so that the largest distance is in the last.
    bins = torch.bucketize(values, edges[1:]).clamp(max=len(edges) - 2)
    counted: list[int] = torch.bincount(bins, minlength=len(edges) - 1).tolist()
    return counted
