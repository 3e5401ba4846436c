"""Our attacks beside the peers' on the same model and images: distances, robust accuracy, propagations and seconds."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.attacks import AttackResult, attack, autoattack, boundary, carlini_wagner
from gradreg.attacks.suite import SuiteName
from gradreg.bench.peers import PEERS, Clock, Lengths, Outcome, fixed_attacks, minimal_attacks, run_peer, version
from gradreg.norms import ThreatName

# The radii that PGD tries, as multiples of the one where about half of other images survive.
GRID = tuple(round(float(2 ** (i / 4)), 3) for i in range(-8, 5))
SUITES: tuple[SuiteName, ...] = ("quick", "standard", "paper")
Trial = Callable[[], Outcome]


@dataclass(frozen=True)
class Row:
    """One attack against the best of all runs; the median and p90 take a failure for infinite, the mean leaves it out.

    All figures are None for an attack that could not be run, and `note` says why.
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
    """All runs on one network and one threat; a text stands for a run that was not possible."""

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
                rows.append(RadiusRow(self.network, self.threat, self.eps, name, robust, *costs))
        return rows

    def equal(self) -> list[Equal]:
        """Attacks that ran here and in foolbox under the same name, which says the settings."""
        found = []
        for name, ours in self.minimal.items():
            theirs = self.minimal.get(f"foolbox {name}")
            if isinstance(ours, Outcome) and isinstance(theirs, Outcome):
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
    )


def half_radius(model: nn.Module, x: Tensor, y: Tensor, threat: ThreatName, seed: int) -> float:
    """The radius that about half of these images survive, two digits of it: those measured are not among them."""
    distance = attack(model, x, y, threat=threat, attacks="quick", seed=seed).distance
    return float(f"{quantile(distance, 0.5):.2g}")


def measure_group(
    group: Group, model: nn.Module, x: Tensor, y: Tensor, *, peers: Sequence[str], seed: int, sizes: Lengths
) -> Iterator[str]:
    """Run everything on the images, one run after the other; yields the name of each run before it starts."""
    threat, eps = group.threat, group.eps
    plans = (
        (group.minimal, _minimal(model, x, y, threat, eps, peers, seed, sizes)),
        (group.fixed, _fixed(model, x, y, threat, eps, peers, seed)),
    )
    for results, plan in plans:
        for name, trial in plan.items():
            yield f"{group.network}, {threat}: {name}"
            if isinstance(trial, str):
                results[name] = trial
                continue
            try:
                results[name] = trial()
            except Exception as error:
                # A peer gives up all images of a batch for one; that must not end the measurement.
                if not name.startswith(tuple(PEERS)):
                    raise
                results[name] = f"failed: {error}"


def _minimal(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    threat: ThreatName,
    eps: float,
    peers: Sequence[str],
    seed: int,
    sizes: Lengths,
) -> dict[str, Trial | str]:
    on: dict[str, Any] = {"threat": threat, "seed": seed}
    plan: dict[str, Trial | str] = {}
    for suite in SUITES:
        plan[suite] = partial(_ours, partial(attack, model, x, y, attacks=suite, **on))
    plan["C&W 6×100"] = partial(_ours, partial(carlini_wagner, model, x, y, **on))
    plan["Boundary 1000"] = partial(_ours, partial(boundary, model, x, y, **on))
    if threat == "l2" and "foolbox" in peers:
        slow = partial(carlini_wagner, model, x, y, **on, rounds=sizes.rounds, steps=sizes.cw)
        plan[f"C&W {sizes.rounds}×{sizes.cw}"] = partial(_ours, slow)
        long = partial(boundary, model, x, y, **on, steps=sizes.boundary)
        plan[f"Boundary {sizes.boundary}"] = partial(_ours, long)
    radii = [eps * factor for factor in GRID]
    for peer in peers:
        attacks = minimal_attacks(peer, threat, radii, sizes)
        absent = _absent(peer)
        for name, run in attacks.items():
            trial = partial(run_peer, run, model, x, y, threat=threat, seed=seed)
            plan[f"{peer} {name}"] = absent or trial
    return plan


def _fixed(
    model: nn.Module, x: Tensor, y: Tensor, threat: ThreatName, eps: float, peers: Sequence[str], seed: int
) -> dict[str, Trial | str]:
    plan: dict[str, Trial | str] = {}
    for suite in SUITES[:2]:
        plan[suite] = partial(_ours, partial(attack, model, x, y, attacks=suite, eps=eps, threat=threat, seed=seed))
    for peer in peers:
        absent = _absent(peer)
        for name, run in fixed_attacks(peer, threat, eps).items():
            trial = partial(run_peer, run, model, x, y, threat=threat, seed=seed, within=eps)
            plan[f"{peer} {name}"] = absent or trial
        if peer == "autoattack":
            # The same seed for everybody; its counts are averages already.
            theirs = partial(autoattack, model, x, y, eps=eps, threat=threat, seed=seed)
            plan["autoattack standard"] = absent or partial(_ours, theirs, averages=True)
    return plan


def _absent(peer: str) -> str:
    return "" if version(peer) else f"not installed: pip install {PEERS[peer][1]}"


def _ours(call: Callable[[], AttackResult], averages: bool = False) -> Outcome:
    clock = Clock()
    result = call()
    cpu, wall = clock.read()
    forwards, backwards = (float(counts.double().mean()) for counts in (result.forwards, result.backwards))
    most = None if averages else int(result.propagations.max())
    return Outcome(result.distance, forwards, backwards, most, cpu, wall)
