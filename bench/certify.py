"""How well bounds hold, how few samples certificates need, and what both cost.

Each function measures one thing on one model; `certify_command` trains the models and shows the results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from bench import measure
from gradreg.attacks import attack
from gradreg.bounds import Regularity, bounds, estimate_regularity, violations
from gradreg.bounds.data import batches
from gradreg.bounds.loss import Scores
from gradreg.ledger import Ledger
from gradreg.losses import probability_margin
from gradreg.norms import ThreatName
from gradreg.smoothing import Certificates, certified_accuracy, certify

Labelled = tuple[Tensor, Tensor]
Stage = Callable[[str], Callable[[int, int], None]]
"""Announces a piece of work by name; returns the callback for its progress (done, total)."""

Method = Literal["paper", "ascent", "local"]

# Probabilities are the paper's loss. Logits do not saturate, so that their bound is more than an attack in disguise.
ESTIMATES: tuple[tuple[Method, Scores], ...] = (
    ("paper", "probabilities"),
    ("ascent", "probabilities"),
    ("local", "probabilities"),
    ("local", "logits"),
)
RADII = 40
SUITE: Literal["standard", "quick"] = "standard"
_BATCH = 256
# What an interrupted attack loses at most.
_ATTACKED = 50


@dataclass(frozen=True)
class BoundRow:
    """How one bound by one estimate fared against the attack; see `bounds.Violations`."""

    network: str
    threat: str
    method: str
    scores: Scores
    """What the margin is of."""
    bound: Literal["ω", "L"]
    rate: float
    worst_ratio: float
    tightness: float
    n: int
    unbroken: int
    censored: int
    """Images whose ω-bound reached the end of the grid and may be larger."""
    distance: float
    """Mean distance of the attack, over the images it broke."""
    kind: str


@dataclass(frozen=True)
class Case:
    """A network to measure, and what all its measurements share."""

    network: str
    model: nn.Module
    seed: int
    stage: Stage
    ledger: Ledger


def compare_bounds(case: Case, threat: ThreatName, calibration: Labelled, evaluated: Labelled) -> list[BoundRow]:
    """Both bounds by every method against the standard attack on the evaluated images.

    Nothing is chosen by the evaluated images: the grid of radii ends at the farthest adversarial image of a hundred
    calibration images.
    """
    model, seed, ledger = case.model, case.seed, case.ledger
    name, where = f"{case.network}-{threat}", f"{case.network}, {threat}"

    def reach() -> float:
        return _reach(model, threat, calibration, seed, case.stage(f"{where}: grid"))

    def attacked() -> tuple[float, ...]:
        bar, path = case.stage(f"{where}: attack"), ledger.path(f"{name}-attack.safetensors")
        settings = {"batch_size": _ATTACKED, "progress": bar, "resume": path}
        found = attack(model, *evaluated, threat=threat, attacks=SUITE, seed=seed, **settings)  # type: ignore[arg-type]
        return tuple(found.distance.tolist())

    end = ledger.once(f"{name}-reach", float, reach)
    grid = torch.linspace(0, end, RADII + 1, dtype=torch.float64)[1:].tolist()
    distance = torch.tensor(ledger.once(f"{name}-distance", tuple[float, ...], attacked))

    def rows(method: Method, scores: Scores) -> tuple[BoundRow, ...]:
        data = evaluated if method == "local" else calibration
        bar = case.stage(f"{where}: {method}, {scores}")
        known = estimate_regularity(
            model, data, threat, method=method, scores=scores, eps=grid, seed=seed, progress=bar
        )
        return bound_rows(case.network, model, evaluated, known, distance)

    return [
        row
        for method, scores in ESTIMATES
        for row in ledger.once(f"{name}-{method}-{scores}", tuple[BoundRow, ...], partial(rows, method, scores))
    ]


def bound_rows(
    network: str, model: nn.Module, evaluated: Labelled, known: Regularity, distance: Tensor
) -> tuple[BoundRow, BoundRow]:
    """The rows of the ω-bound and of the L-bound."""
    bound = bounds(model, *evaluated, known)
    broken = distance[(distance > 0) & distance.isfinite()].double()

    def row(name: Literal["ω", "L"], radius: Tensor, censored: Tensor) -> BoundRow:
        fared = vars(violations(radius, distance))
        mean = float(broken.mean())
        made = (known.threat, known.method, known.scores)
        return BoundRow(network, *made, name, **fared, censored=int(censored.sum()), distance=mean)

    return row("ω", bound.omega, bound.censored), row("L", bound.lipschitz, torch.zeros_like(bound.censored))


def _reach(
    model: nn.Module, threat: ThreatName, calibration: Labelled, seed: int, progress: Callable[[int, int], None]
) -> float:
    x, y = calibration[0][:100], calibration[1][:100]
    distance = attack(model, x, y, threat=threat, attacks="quick", seed=seed, progress=progress).distance
    return float(distance[distance.isfinite()].max())


@dataclass(frozen=True)
class SmoothingRow:
    """The sequential test against Cohen's fixed number of samples, on the same images."""

    network: str
    radii: tuple[float, ...]
    samples: float
    """Mean per image, those that pick the class included."""
    cohen_samples: float
    certified: tuple[float, ...]
    """Fraction of images that are certified with the right class, at each radius."""
    cohen_certified: tuple[float, ...]
    n: int

    @property
    def saving(self) -> float:
        """How many times fewer samples."""
        return self.cohen_samples / self.samples

    @property
    def gap(self) -> float:
        """The largest difference of the certified shares; positive where Cohen's procedure certifies more."""
        return max((b - a for a, b in zip(self.certified, self.cohen_certified, strict=True)), key=abs)


@dataclass(frozen=True)
class Noise:
    """How the smoothed classifier is certified."""

    sigma: float
    radii: tuple[float, ...]
    samples: int
    """Of Cohen's procedure per image, and at most of ours."""


def compare_smoothing(case: Case, x: Tensor, y: Tensor, noise: Noise) -> list[SmoothingRow]:
    """One radius at a time, and the whole grid with 0 in front, each against one run of Cohen's procedure."""

    def run(method: Literal["sequential", "cohen"], asked: Sequence[float] | None) -> Certificates:
        at = [f"{radius:g}" for radius in asked or ()]
        return certify(
            case.model,
            x,
            sigma=noise.sigma,
            n=noise.samples,
            radii=asked,
            method=method,
            seed=case.seed,
            # A finished state is read in no time, so certificates need no other record.
            state=case.ledger.path("-".join((case.network, method, *at)) + ".safetensors"),
            progress=case.stage(f"{case.network}, smoothing: {method}{' at ' * bool(at)}{', '.join(at)}"),
        )

    cohen = run("cohen", None)

    def row(asked: tuple[float, ...]) -> SmoothingRow:
        ours = run("sequential", asked)
        return SmoothingRow(
            network=case.network,
            radii=asked,
            samples=float(ours.samples.double().mean()),
            cohen_samples=float(cohen.samples.double().mean()),
            certified=tuple(one.accuracy for one in certified_accuracy(ours, y, asked)),
            cohen_certified=tuple(one.accuracy for one in certified_accuracy(cohen, y, asked)),
            n=len(x),
        )

    return [row((radius,)) for radius in noise.radii] + [row((0.0, *noise.radii))]


@dataclass(frozen=True)
class Cost:
    """Best times of interleaved rounds; the ratio is what can be compared between machines."""

    seconds: float
    baseline: float

    @property
    def ratio(self) -> float:
        """Ours over the baseline."""
        return self.seconds / self.baseline


def bounds_cost(model: nn.Module, x: Tensor, y: Tensor, known: Regularity, rounds: int) -> Cost:
    """Both bounds of all images relative to one forward and one backward to the pixels, in the same batches."""

    def passes() -> None:
        for part in batches(len(x), _BATCH):
            pixels = x[part].detach().requires_grad_()
            torch.autograd.grad(probability_margin(model(pixels), y[part]).sum(), pixels)

    times = measure.seconds(
        {"ours": lambda: bounds(model, x, y, known, batch_size=_BATCH), "passes": passes}, rounds=rounds
    )
    return Cost(times["ours"], times["passes"])
