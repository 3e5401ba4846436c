"""Our attacks beside the peers' on the same model and images: distances, robust accuracy, propagations and seconds."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bench.peers import Outcome
from gradreg.norms import ThreatName


@dataclass(frozen=True)
class Row:
    """One attack against the best of all runs; the median and p90 take a failure for infinite, the mean leaves it out.

    All figures are None for an attack that could not be run; `note` says why, or why a peer gave up some images.
    """

    network: str
    threat: str
    attack: str
    median: float | None = None
    p90: float | None = None
    mean: float | None = None
    success: float | None = None
    forwards: float | None = None
    backwards: float | None = None
    most: int | None = None
    cpu: float | None = None
    wall: float | None = None
    note: str = ""


@dataclass(frozen=True)
class RadiusRow:
    """Robust accuracy at one radius, and what it cost to know it."""

    network: str
    threat: str
    eps: float
    attack: str
    robust: float | None = None
    forwards: float | None = None
    backwards: float | None = None
    cpu: float | None = None
    wall: float | None = None
    note: str = ""

    @property
    def propagations(self) -> float | None:
        """Forwards and backwards, a mean over the images."""
        return None if self.forwards is None or self.backwards is None else self.forwards + self.backwards


@dataclass(frozen=True)
class Equal:
    """Ours over foolbox's with the same numbers of steps: the median of the images' distance ratios, and sums."""

    network: str
    attack: str
    distance: float
    cpu: float
    wall: float
    propagations: float


@dataclass
class Group:
    """All runs on one network and one threat; a text stands for an attack that is not there."""

    network: str
    threat: ThreatName
    eps: float
    minimal: dict[str, Outcome | str] = field(default_factory=dict)
    fixed: dict[str, Outcome | str] = field(default_factory=dict)

    @property
    def best(self) -> Tensor:
        """Each image's smallest distance over all runs."""
        outcomes = [run for run in (*self.minimal.values(), *self.fixed.values()) if isinstance(run, Outcome)]
        return torch.stack([outcome.distance for outcome in outcomes]).amin(0)

    def rows(self) -> list[Row]:
        """The runs for the smallest distance."""
        best = self.best
        return [
            Row(self.network, self.threat, name, note=run)
            if isinstance(run, str)
            else _row(Row(self.network, self.threat, name), run, best)
            for name, run in self.minimal.items()
        ]

    def radius_rows(self) -> list[RadiusRow]:
        """The runs at the radius."""
        rows = []
        for name, run in self.fixed.items():
            if isinstance(run, str):
                rows.append(RadiusRow(self.network, self.threat, self.eps, name, note=run))
            else:
                # A peer's image on the sphere may lie a rounding outside of it.
                robust = float((run.distance > self.eps * (1 + 1e-5)).double().mean())
                costs = (run.forwards, run.backwards, run.cpu, run.wall)
                rows.append(RadiusRow(self.network, self.threat, self.eps, name, robust, *costs, run.note))
        return rows

    def equal(self) -> list[Equal]:
        """Attacks that ran here and in foolbox under the same name, which says the settings."""
        found = []
        for name, ours in self.minimal.items():
            theirs = self.minimal.get(f"foolbox {name}")
            if isinstance(ours, Outcome) and isinstance(theirs, Outcome) and bool(theirs.distance.isfinite().any()):
                distance = quantile(ratios(ours.distance, theirs.distance), 0.5)
                costs = (ours.cpu / theirs.cpu, ours.wall / theirs.wall, ours.propagations / theirs.propagations)
                found.append(Equal(self.network, name, distance, *costs))
        return found


def ratios(distance: Tensor, best: Tensor) -> Tensor:
    """Distances over the best, for images that have one; infinite where the attack failed."""
    known = best.isfinite()
    return distance[known].double() / best[known].double()


def quantile(values: Tensor, share: float) -> float:
    """The smallest value that this share of the values does not exceed: never between a finite one and an infinite."""
    ordered = values.sort().values
    return float(ordered[max(0, math.ceil(share * len(ordered)) - 1)]) if len(ordered) else math.nan


def _row(row: Row, run: Outcome, best: Tensor) -> Row:
    apart = ratios(run.distance, best)
    return Row(
        row.network,
        row.threat,
        row.attack,
        quantile(apart, 0.5),
        quantile(apart, 0.9),
        float(apart[apart.isfinite()].mean()),
        float(run.distance.isfinite().double().mean()),
        run.forwards,
        run.backwards,
        run.most,
        run.cpu,
        run.wall,
        run.note,
    )
