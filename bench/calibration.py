"""`python -m bench calibration`: what local and calibrated bounds say on the trained CIFAR-10 networks.

What the search costs beside the attacks, whether the promise holds over many splits of the images, how tight the bounds
are, and how far they carry to images of another kind: they promise nothing there.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import process_time

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from bench.options import CalibrationOptions
from bench.record import plain_table, write_json
from gradreg.attacks import attack
from gradreg.bounds import Calibration, bounds, chance_of, conformal_scale, estimate_regularity, violations
from gradreg.classifier import Classifier
from gradreg.data import load
from gradreg.norms import ThreatName
from gradreg.provenance import machine
from gradreg.randomness import generator
from gradreg.runs import load as load_network

NETWORKS: dict[str, ThreatName] = {"cifar10-linf": "linf", "cifar10-l2": "l2"}


@dataclass(frozen=True)
class Searched:
    """Images with their ω-bounds, scores and attack distances, and what both cost."""

    omega: Tensor
    score: Tensor
    distance: Tensor
    propagations: float
    attacked_propagations: float
    seconds: float
    attacked_seconds: float


@dataclass(frozen=True)
class BoundRow:
    """The ω-bound and the calibrated bound of one network's test images."""

    network: str
    threat: str
    n: int
    violated: float
    tightness: float
    propagations: float
    attacked_propagations: float
    time: float
    """Of the search, over that of the attacks."""
    calibrated_violated: float
    """Mean over the splits."""
    spread: float
    """Standard deviation of the rate over the splits."""
    calibrated_tightness: float


@dataclass(frozen=True)
class ShiftRow:
    """How often a bound calibrated on test images fails on others."""

    network: str
    shift: str
    n: int
    violated: float
    chance: float
    """Of as many violations or more, were the images of the same kind."""


def brighter(x: Tensor) -> Tensor:
    """A quarter nearer to white."""
    return x + 0.25 * (1 - x)


def faded(x: Tensor) -> Tensor:
    """Half of the contrast."""
    return 0.5 + 0.5 * (x - 0.5)


def blurred(x: Tensor) -> Tensor:
    """The mean over 3×3 pixels."""
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1), "replicate"), 3, 1)


def noisy(x: Tensor) -> Tensor:
    """Normal noise of σ = 0.05, the same for the same shape."""
    noise = torch.randn(x.shape, generator=generator("bench calibration", 0), dtype=x.dtype)
    return (x + 0.05 * noise).clamp(0, 1)


SHIFTS: dict[str, Callable[[Tensor], Tensor]] = {
    "noise": noisy,
    "blur": blurred,
    "brightness": brighter,
    "contrast": faded,
}


def searched(model: nn.Module, x: Tensor, y: Tensor, threat: ThreatName, seed: int) -> Searched:
    """Search around the images and attack them."""
    classifier, size = Classifier.of(model), 100
    parts = list(zip(x.split(size), y.split(size), strict=True))
    omega, score, spent, started = [], [], 0.0, process_time()
    for images, labels in parts:
        with classifier.counted(len(images)) as queries:
            known = estimate_regularity(classifier, (images, labels), threat, method="local", seed=seed)
            bound = bounds(classifier, images, labels, known)
        omega.append(bound.omega)
        score.append(bound.score)
        spent += float((queries.forwards + queries.backwards).sum())
    between = process_time()
    found = attack(classifier, x, y, threat=threat, seed=seed, batch_size=size)
    attacked = float((found.forwards + found.backwards).double().mean())
    seconds = between - started, process_time() - between
    return Searched(torch.cat(omega), torch.cat(score), found.distance, spent / len(x), attacked, *seconds)


def splits(score: Tensor, distance: Tensor, alpha: float, times: int, seed: int) -> tuple[Tensor, Tensor]:
    """The rate of violations and the tightness of one half, calibrated by the other half, over random halves."""
    source, rates, tight = generator("splits", seed), [], []
    for _ in range(times):
        order = torch.randperm(len(score), generator=source)
        held, fresh = order[: len(order) // 2], order[len(order) // 2 :]
        scale = conformal_scale(score[held], distance[held], alpha)
        fared = violations(score[fresh] / scale, distance[fresh], kind="calibrated")
        rates.append(fared.rate)
        tight.append(fared.tightness)
    return torch.tensor(rates), torch.tensor(tight)


def bound_row(network: str, threat: ThreatName, found: Searched, options: CalibrationOptions) -> BoundRow:
    """The figures of a network's test images."""
    fared = violations(found.omega, found.distance)
    rates, tight = splits(found.score, found.distance, options.alpha, options.splits, options.seed)
    cost = found.propagations, found.attacked_propagations, found.seconds / found.attacked_seconds
    spread = float(rates.std())
    return BoundRow(
        network, threat, fared.n, fared.rate, fared.tightness, *cost, float(rates.mean()), spread, float(tight.mean())
    )


def shift_row(network: str, shift: str, known: Calibration, found: Searched) -> ShiftRow:
    """The bound calibrated on test images, on others."""
    fared = violations(found.score / known.scale, found.distance, kind="calibrated")
    violated = round(fared.rate * fared.n)
    return ShiftRow(network, shift, fared.n, fared.rate, chance_of(violated, fared.n, known))


def show(options: CalibrationOptions, console: Console) -> tuple[list[BoundRow], list[ShiftRow]]:
    """Measure both networks, print the tables, and write the JSON file if one is named."""
    data = load("cifar10", options.data_dir)
    order = torch.randperm(len(data.test), generator=generator("evaluation", options.seed))
    held, others = order[: options.images], order[options.images :][: options.shifted]
    x, y = data.test.floats(held), data.test.labels[held]
    fresh, labels = data.test.floats(others), data.test.labels[others]
    trained = torch.arange(options.shifted)
    rows, shifted = [], []
    for network, threat in NETWORKS.items():
        model = load_network(network)
        found = searched(model, x, y, threat, options.seed)
        rows.append(bound_row(network, threat, found, options))
        scale = conformal_scale(found.score, found.distance, options.alpha)
        n = int((found.distance > 0).sum())
        known = Calibration(options.alpha, scale, scale, scale, "standard", n, 0)
        kinds = {"none": fresh, **{name: shift(fresh) for name, shift in SHIFTS.items()}}
        for name, images in kinds.items():
            shifted.append(shift_row(network, name, known, searched(model, images, labels, threat, options.seed)))
        seen = data.train.floats(trained), data.train.labels[trained]
        shifted.append(shift_row(network, "training images", known, searched(model, *seen, threat, options.seed)))
    console.print(_bounds_table(rows, options))
    console.print(_shift_table(shifted, options))
    if options.json is not None:
        figures = {"bounds": [asdict(row) for row in rows], "shifted": [asdict(row) for row in shifted]}
        write_json(options.json, {"options": options.facts(), "machine": machine(), **figures})
    return rows, shifted


def _bounds_table(rows: list[BoundRow], options: CalibrationOptions) -> Table:
    table = plain_table(
        f"local bounds of {options.images} test images, calibrated over {options.splits} splits, α = {options.alpha:g}",
        ("network", "n", "ω violated", "tightness", "cost", "attacks", "time", "calibrated violated", "tightness"),
        left=1,
    )
    for row in rows:
        rate = f"{row.calibrated_violated:.1%} ± {row.spread:.1%}"
        cost = f"{row.propagations:.0f}", f"{row.attacked_propagations:.0f}", f"{row.time:.2f}"
        heuristic = f"{row.violated:.1%}", f"{row.tightness:.2f}"
        table.add_row(row.network, str(row.n), *heuristic, *cost, rate, f"{row.calibrated_tightness:.2f}")
    return table


def _shift_table(rows: list[ShiftRow], options: CalibrationOptions) -> Table:
    title = f"the same bounds on {options.shifted} other images, α = {options.alpha:g}"
    table = plain_table(title, ("network", "images", "n", "violated", "by chance"), left=2)
    for row in rows:
        table.add_row(row.network, row.shift, str(row.n), f"{row.violated:.1%}", f"{row.chance:.2g}")
    return table
