"""`python -m bench certify`: the measurements of `certify` on two networks, as tables and as JSON.

The networks are those of two run directories, or the digits' ones, trained in a minute.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from bench.certify import BoundRow, Cost, SmoothingRow, Stage, bounds_cost, compare_bounds, compare_smoothing
from bench.certify_report import Report, bounds_table, cost_table, smoothing_table
from bench.certify_work import Work
from bench.clever import CleverRow, compare_clever
from bench.digits import EPS, fresh_model, trained
from bench.record import target_table, write_json
from gradreg import storage
from gradreg.bounds import estimate_regularity
from gradreg.data import DataSet, Images, load
from gradreg.errors import ConfigError
from gradreg.norms import ThreatName
from gradreg.provenance import machine
from gradreg.runs import load as load_run

CALIBRATION = 640
SIGMA, RADII, COHEN = 0.25, (0.25, 0.5, 0.75), 100_000
THREATS: tuple[ThreatName, ...] = ("l2", "linf")
# The bounds' cost is of this many images.
TIMED = 1000
_DIGITS = "mnist5k"


@dataclass(frozen=True)
class Options:
    """What is measured, and how much of it."""

    images: int = 200
    smoothing_images: int = 200
    epochs: int = 6
    seed: int = 0
    cohen: int = COHEN
    clever_samples: int = 100
    rounds: int = 7
    data: str = _DIGITS
    undefended: Path | None = None
    """A run directory; None: the digits' network, trained here."""
    regularised: Path | None = None

    @property
    def runs(self) -> dict[str, Path | None]:
        """The two networks, in the order they are measured."""
        return {"undefended": self.undefended, "regularised": self.regularised}


def bench_certify(
    options: Options, data_dir: Path | None, output: Path | None, console: Console, work: Path | None = None
) -> Report:
    """Measure both networks, print each table once it is known, and write the JSON file last.

    What is finished is kept in the folder `work`, and not measured again.
    """
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"{output} cannot be written: there is no folder {output.parent}.")
    _check_runs(options)
    data = load(options.data, data_dir)
    _check(options, len(data.test))
    kept = Work(work, {**asdict(options), "weights": [_fingerprint(run) for run in options.runs.values()]})
    x, y = data.test.floats(slice(TIMED)), data.test.labels[:TIMED]
    calibration = data.train.floats(slice(CALIBRATION)), data.train.labels[:CALIBRATION]
    rows: list[BoundRow] = []
    smoothing: list[SmoothingRow] = []
    with _bars(console) as stage:
        models = {network: _network(network, data, options, kept, stage) for network in options.runs}
        for network, model in models.items():
            # Hours of work are to come, and the second network may not fit.
            _check_fit(model, x, network)
        for network, model in models.items():
            common = {"seed": options.seed, "stage": stage, "work": kept}
            some = slice(options.images)
            for threat in THREATS:
                rows += compare_bounds(network, model, threat, calibration, (x[some], y[some]), **common)  # type: ignore[arg-type]
            some = slice(options.smoothing_images)
            smoothing += compare_smoothing(
                network,
                model,
                x[some],
                y[some],
                sigma=SIGMA,
                radii=RADII,
                n=options.cohen,
                **common,  # type: ignore[arg-type]
            )
        console.print(bounds_table(rows, f"heuristic bounds against the standard attack, {options.images} test images"))
        title = f"smoothing of {options.smoothing_images} test images, σ = {SIGMA}, n = {options.cohen:,}"
        console.print(smoothing_table(smoothing, title))
        stage("cost of the bounds")
        (cost,) = kept.rows("cost", Cost, lambda: [_cost(model, calibration, x, y, options.rounds)])
        stage("CLEVER")
        (peer,) = kept.rows(
            "clever",
            CleverRow,
            lambda: [compare_clever(model, x, y, samples=options.clever_samples, radius=2.0, rounds=2)],
        )
    report = Report(rows, smoothing, cost, peer)
    console.print(cost_table(cost, peer, len(x)))
    console.print(target_table(report.targets()))
    if output is not None:
        figures = {**asdict(report), "targets": [asdict(target) for target in report.targets()]}
        shown = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
        write_json(output, {"options": shown, "machine": machine(), **figures})
    return report


def _cost(model: nn.Module, calibration: tuple[Tensor, Tensor], x: Tensor, y: Tensor, rounds: int) -> Cost:
    known = estimate_regularity(model, calibration, "l2", method="paper", eps=[0.5, 1.0], samples=1)
    return bounds_cost(model, x, y, known, rounds)


def _network(network: str, data: DataSet, options: Options, work: Work, stage: Stage) -> nn.Module:
    stage(f"the {network} network")
    run = options.runs[network]
    model = load_run(run) if run is not None else _digits(data, network, options, work)
    # Convolutions on a processor are a third faster in this layout; the function is the same.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _digits(data: DataSet, network: str, options: Options, work: Work) -> nn.Module:
    """The digits' network of that name; it is kept as well, so that all figures are of the same weights."""
    assert isinstance(data.train, Images)
    path = work.path(f"{network}.safetensors")
    if path is not None and path.exists():
        model = fresh_model(options.seed)
        model.load_state_dict(storage.read(path, "network")[0])
        return model.eval()
    model = trained(data.train, EPS if network == "regularised" else 0.0, options.epochs, options.seed)
    if path is not None:
        storage.write(path, "network", model.state_dict(), {})
    return model


def _fingerprint(run: Path | None) -> str:
    """Of a run's weights: a run that was continued is another network."""
    weights = None if run is None else run / "best.safetensors"
    return blake2b(weights.read_bytes(), digest_size=8).hexdigest() if weights and weights.is_file() else ""


def _check(options: Options, available: int) -> None:
    available = min(available, TIMED)
    for name in ("images", "smoothing_images"):
        value = getattr(options, name)
        if not 1 <= value <= available:
            raise ConfigError(f"{name} is {value}, but there are 1 to {available} test images to take.")
    if options.epochs < 1:
        raise ConfigError(f"epochs is {options.epochs}, but a network that is worth measuring needs at least 1.")


def _check_runs(options: Options) -> None:
    missing = [name for name, run in options.runs.items() if run is None]
    if len(missing) == 1:
        raise ConfigError(f"There is a run of one network only: name the other too, with --{missing[0]} RUN.")
    if missing and options.data != _DIGITS:
        raise ConfigError(
            f"The networks that are trained here are for {_DIGITS}: for {options.data}, train two with gradreg train "
            "and name their run directories with --undefended RUN --regularised RUN."
        )


def _check_fit(model: nn.Module, x: Tensor, network: str) -> None:
    try:
        with torch.no_grad():
            model(x[:1])
    except RuntimeError as error:
        shape = "×".join(map(str, x.shape[1:]))
        raise ConfigError(
            f"The {network} network takes no images of {shape}: name the data set it was trained on with --data."
        ) from error


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
