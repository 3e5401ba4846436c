"""`python -m bench certify`: the measurements of `certify` on two networks, as tables and as JSON.

The networks are those of two run directories, or the digits' ones, trained in a minute.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from bench.certify import (
    BoundRow,
    Case,
    Cost,
    Noise,
    SmoothingRow,
    Stage,
    bounds_cost,
    compare_bounds,
    compare_smoothing,
)
from bench.certify_report import Report, bounds_table, cost_table, smoothing_table
from bench.clever import CleverRow, compare_clever
from bench.networks import of_digits, of_runs, weights_of
from bench.options import NETWORKS, CertifyOptions
from bench.record import target_table, write_json
from gradreg.bounds import estimate_regularity
from gradreg.data import load
from gradreg.errors import ConfigError
from gradreg.ledger import Ledger
from gradreg.norms import ThreatName
from gradreg.provenance import machine

CALIBRATION = 640
SIGMA, RADII = 0.25, (0.25, 0.5, 0.75)
THREATS: tuple[ThreatName, ...] = ("l2", "linf")
# The bounds' cost is of this many images.
TIMED = 1000
# Of CLEVER's ball.
_RADIUS = 2.0


def show(options: CertifyOptions, console: Console) -> Report:
    """Measure both networks, print each table once it is known, and write the JSON file last."""
    data = load(options.data, options.data_dir)
    _check_images(options, len(data.test))
    x, y = data.test.floats(slice(TIMED)), data.test.labels[:TIMED]
    calibration = data.train.floats(slice(CALIBRATION)), data.train.labels[:CALIBRATION]
    models = of_runs(options)
    about = {name: str(value) for name, value in options.facts().items()} | weights_of(models)
    rows: list[BoundRow] = []
    smoothing: list[SmoothingRow] = []
    with Ledger(options.work, about) as ledger, _bars(console) as stage:
        if not models:
            stage("networks")
            models = {network: of_digits(network, data, options, ledger) for network in NETWORKS}
        for network, model in models.items():
            # Hours of work are to come, and the second network may not fit.
            _check_fit(model, x, network)
        for network, model in models.items():
            case = Case(network, model, options.seed, stage, ledger)
            some = slice(options.images)
            for threat in THREATS:
                rows += compare_bounds(case, threat, calibration, (x[some], y[some]))
            some = slice(options.smoothing_images)
            smoothing += compare_smoothing(case, x[some], y[some], Noise(SIGMA, RADII, options.cohen))
        console.print(bounds_table(rows, f"heuristic bounds against the standard attack, {options.images} test images"))
        title = f"smoothing of {options.smoothing_images} test images, σ = {SIGMA}, n = {options.cohen:,}"
        console.print(smoothing_table(smoothing, title))
        stage("cost of the bounds")
        cost = ledger.once("cost", Cost, lambda: _cost(model, calibration, x, y, options.rounds))
        stage("CLEVER")
        samples = options.clever_samples
        peer = ledger.once(
            "clever", CleverRow, lambda: compare_clever(model, x, y, samples=samples, radius=_RADIUS, rounds=2)
        )
    report = Report(rows, smoothing, cost, peer)
    console.print(cost_table(cost, peer, len(x)))
    console.print(target_table(report.targets()))
    if options.json is not None:
        figures = {**asdict(report), "targets": [asdict(target) for target in report.targets()]}
        write_json(options.json, {"options": options.facts(), "machine": machine(), **figures})
    return report


def _cost(model: nn.Module, calibration: tuple[Tensor, Tensor], x: Tensor, y: Tensor, rounds: int) -> Cost:
    known = estimate_regularity(model, calibration, "l2", method="paper", eps=[0.5, 1.0], samples=1)
    return bounds_cost(model, x, y, known, rounds)


def _check_images(options: CertifyOptions, available: int) -> None:
    available = min(available, TIMED)
    for name in ("images", "smoothing_images"):
        value = getattr(options, name)
        if value > available:
            raise ConfigError(f"{name} must be at most {available}, the test images there are; got {value}.")


def _check_fit(model: nn.Module, x: Tensor, network: str) -> None:
    try:
        with torch.no_grad():
            model(x[:1])
    except RuntimeError as error:
        shape = "×".join(map(str, x.shape[1:]))
        raise ConfigError(
            f"The {network} network cannot classify images of {shape}. Name the data set it was trained on with --data."
        ) from error


@contextmanager
def _bars(console: Console) -> Iterator[Stage]:
    """A bar for the work at hand; silent where the output is not a terminal."""
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
