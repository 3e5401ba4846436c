"""Training runs side by side: in which settings they differ, what each reached on its held-out images, what it cost.

Nothing but config.toml and metrics.jsonl of a run directory is read, so that a sweep can be kept without its weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gradreg.errors import DataError
from gradreg.report.layout import Cell, Column, Row, Table
from gradreg.report.numbers import images, number, word
from gradreg.report.settings import UNTOLD, Flat, differences, flat, told
from gradreg.runs.directory import CONFIG, RunDirectory
from gradreg.smoothing.intervals import clopper_pearson


@dataclass(frozen=True)
class Run:
    """A run by its settings and its epochs."""

    name: str
    settings: Flat
    epochs: tuple[Mapping[str, Any], ...]

    @property
    def best(self) -> Mapping[str, Any]:
        """The epoch whose weights are in best.safetensors."""
        return next((row for row in reversed(self.epochs) if row["best"]), self.epochs[-1])

    @property
    def machine(self) -> str | None:
        """What its newest epoch was trained on; None of a run that did not write it down."""
        return self.epochs[-1].get("machine")

    @property
    def commits(self) -> str:
        """The code that trained it, of several parts if it was changed in between; empty if no epoch tells."""
        return ", ".join(dict.fromkeys(row["commit"] for row in self.epochs if row.get("commit")))

    @property
    def rate(self) -> float:
        """Images a second, of the middle epoch: the first one warms up, and others may have had company."""
        return median(float(row["images_per_second"]) for row in self.epochs)


def read(folder: Path) -> Run:
    """The run in a folder."""
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder} holds no run (there is no {CONFIG} in it): name folders that `gradreg train` wrote.")
    run = RunDirectory(folder)
    settings, epochs = run.config(), run.metrics()
    if not epochs:
        raise DataError(f"{folder} holds a run without a finished epoch (metrics.jsonl): there is nothing to compare.")
    return Run(folder.resolve().name, flat(settings), tuple(epochs))


def middle(runs: Sequence[Run]) -> Run:
    """What a sweep turns around: of the commonest kind of objective the run that differs least from all the others.

    The first of equals. One of a rarer kind is told apart from the others by its kind alone, and would seem nearest.
    """
    kinds = [run.settings.get("objective.name") for run in runs]
    commonest = max(kinds, key=kinds.count)
    candidates = [run for run, kind in zip(runs, kinds, strict=True) if kind == commonest]
    return min(candidates, key=lambda run: sum(len(differences(other.settings, run.settings)) for other in runs))


def runs_table(runs: Sequence[Run]) -> Table:
    """A row a run, in the order given."""
    if not runs:
        raise DataError("There is no run to compare: name the folders that `gradreg train` wrote.")
    base = middle(runs)
    # Runs from before they wrote down their commit would fill a column with dashes.
    commit = (Column("commit", "Of the code that trained it."),) if any(run.commits for run in runs) else ()
    return Table(
        "runs",
        "Training runs",
        f"The best epoch of every run, on {images(int(run.best['held_out']) for run in runs)} held out of the training "
        f"set ({images(int(run.best['probed']) for run in runs)} under the probe, which also picked the epoch). Below "
        "a figure: its 95 % interval for the choice of images.",
        (
            Column(f"differs from {base.name} in", "The run that has most in common with all the others."),
            Column("clean", "Held-out images that are classified correctly.", "high"),
            Column("probe", "The same under the run's own probe, a short PGD.", "high"),
            Column("probe at the end", "The same after the last epoch.", "high"),
            Column("one step", "The same under a single step: far above the probe, the run overfits to it.", None),
            Column("‖∇ℓ‖", "Mean dual norm of the loss's gradient.", "low"),
            Column("epoch", "The best one, of all that were run."),
            Column("× undefended", "Time of an image in training over that in the undefended run here.", "low"),
            *commit,
        ),
        tuple(
            Row(run.name, (*_figures(run, runs, base), *(word(run.commits or UNTOLD) for _ in commit))) for run in runs
        ),
    )


def cost(run: Run, among: Sequence[Run]) -> float | None:
    """Time of an image over that in the undefended run of the same network on such a machine; None without one."""
    for other in among:
        alike = _network(other) == _network(run) and other.machine == run.machine
        if alike and other.settings.get("objective.name") == "undefended":
            return other.rate / run.rate
    return None


def _figures(run: Run, among: Sequence[Run], base: Run) -> tuple[Cell, ...]:
    best = run.best
    return (
        word(told(differences(run.settings, base.settings)) or "nothing"),
        _share(best, "clean", "held_out"),
        _share(best, "probe", "probed"),
        _share(run.epochs[-1], "probe", "probed"),
        _share(best, "single_step", "probed"),
        number(best.get("grad_norm")),
        word(f"{best['epoch']} of {run.epochs[-1]['epoch']}"),
        number(cost(run, among), unit="×"),
    )


def _share(row: Mapping[str, Any], key: str, of: str) -> Cell:
    value, n = row.get(key), int(row[of])
    if value is None:
        return Cell(UNTOLD, None)
    low, high = clopper_pearson(round(value * n), n)
    return Cell(f"{100 * value:.1f} %", float(value), f"{100 * low:.1f}–{100 * high:.1f} %")


def _network(run: Run) -> tuple[Any, ...]:
    return tuple(run.settings.get(key) for key in ("model.name", "data", "channels_last", "compile"))
