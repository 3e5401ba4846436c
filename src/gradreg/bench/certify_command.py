"""`gradreg bench certify`: the measurements of `certify` on the embedded digits, as tables and as JSON."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gradreg.bench.certify import BoundRow, Stage, bounds_cost, compare_bounds, compare_smoothing
from gradreg.bench.certify_report import Report, bounds_table, cost_table, smoothing_table
from gradreg.bench.clever import compare_clever
from gradreg.bench.record import machine, target_table, write_json
from gradreg.bounds import estimate_regularity
from gradreg.data import Images, load
from gradreg.digits import EPS, trained
from gradreg.errors import ConfigError
from gradreg.norms import ThreatName

CALIBRATION = 640
SIGMA, RADII, COHEN = 0.25, (0.25, 0.5, 0.75), 100_000
THREATS: tuple[ThreatName, ...] = ("l2", "linf")


@dataclass(frozen=True)
class Options:
    """How much is measured."""

    images: int = 200
    smoothing_images: int = 50
    epochs: int = 6
    seed: int = 0
    cohen: int = COHEN
    clever_samples: int = 100
    rounds: int = 7


def bench_certify(options: Options, data_dir: Path | None, output: Path | None, console: Console) -> Report:
    """Train both networks, measure, print each table once it is known, and write the JSON file last."""
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"{output} cannot be written: there is no folder {output.parent}.")
    digits = load("mnist5k", data_dir)
    assert isinstance(digits.train, Images)
    assert isinstance(digits.test, Images)
    _check(options, len(digits.test))
    x, y = digits.test.floats(), digits.test.labels
    calibration = digits.train.floats(slice(CALIBRATION)), digits.train.labels[:CALIBRATION]
    evaluated = x[: options.images], y[: options.images]
    rows: list[BoundRow] = []
    with _bars(console) as stage:
        for network, eps in (("undefended", 0.0), ("regularised", EPS)):
            stage(f"training the {network} network")
            # Convolutions on a processor are a third faster in this layout; the function is the same.
            model = trained(digits.train, eps, options.epochs, options.seed)
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for threat in THREATS:
                rows += compare_bounds(network, model, threat, calibration, evaluated, seed=options.seed, stage=stage)
        console.print(bounds_table(rows, f"heuristic bounds against the standard attack, {options.images} test images"))

        stage("cost of the bounds")
        known = estimate_regularity(model, calibration, "l2", method="paper", eps=[0.5, 1.0], samples=1)
        cost = bounds_cost(model, x, y, known, options.rounds)
        stage("CLEVER")
        peer = compare_clever(model, x, y, samples=options.clever_samples, radius=2.0, rounds=2)
        few = slice(options.smoothing_images)
        smoothing = compare_smoothing(
            model, x[few], y[few], sigma=SIGMA, radii=RADII, n=options.cohen, seed=options.seed, stage=stage
        )
    report = Report(rows, smoothing, cost, peer)
    title = f"smoothing of the regularised network, {len(x[few])} test images, σ = {SIGMA}, n = {options.cohen:,}"
    console.print(smoothing_table(smoothing, title))
    console.print(cost_table(cost, peer, len(x)))
    console.print(target_table(report.targets()))
    if output is not None:
        figures = {**asdict(report), "targets": [asdict(target) for target in report.targets()]}
        write_json(output, {"options": asdict(options), "machine": machine(), **figures})
    return report


def _check(options: Options, available: int) -> None:
    for name in ("images", "smoothing_images"):
        value = getattr(options, name)
        if not 1 <= value <= available:
            raise ConfigError(f"{name} is {value}, but there are 1 to {available} test images to take.")
    if options.epochs < 1:
        raise ConfigError(f"epochs is {options.epochs}, but a network that is worth measuring needs at least 1.")


@contextmanager
def _bars(console: Console) -> Iterator[Stage]:
    """A bar for the work at hand; silent where the output is no terminal."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def stage(name: str) -> "_Bar":
            for finished in progress.task_ids:
                progress.remove_task(finished)
            return _Bar(progress, name)

        yield stage


class _Bar:
    def __init__(self, progress: Progress, name: str) -> None:
        self.progress, self.task = progress, progress.add_task(name, total=None)

    def __call__(self, done: int, total: int) -> None:
        self.progress.update(self.task, completed=done, total=total)
