"""Training runs side by side: the settings they differ in, accuracy on held-out images, cost.

The table is made of config.toml and metrics.jsonl alone, so that a sweep can be kept without its weights. Where these
are kept, they say whether the two belong together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gradreg.display.numbers import interval, percent
from gradreg.errors import DataError
from gradreg.norms import THREATS
from gradreg.report.numbers import ball, images
from gradreg.report.numbers import share as counted
from gradreg.report.tables.cells import number, word
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table
from gradreg.report.tables.settings import UNKNOWN, Flat, changes_text, differences, flat
from gradreg.runs.directory import CONFIG, RunDirectory

# Columns of metrics.jsonl that every run has.
_COMPARED = ("best", "clean", "held_out", "probed", "images_per_second")


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
    def probe(self) -> str:
        """The attack that its accuracy was probed with, as "l∞ 8/255"; empty without one."""
        threat, eps = self.settings.get("probe.threat"), self.settings.get("probe.eps")
        symbol = THREATS[threat].symbol if threat in THREATS else str(threat)
        return ball(symbol, float(eps)) if threat is not None and eps is not None else ""

    @property
    def machine(self) -> str | None:
        """What the last epoch was trained on; None if the run has no record of it."""
        return self.epochs[-1].get("machine")

    @property
    def commits(self) -> str:
        """Of the code that trained it, several if it changed in between; empty without a record."""
        return ", ".join(dict.fromkeys(row["commit"] for row in self.epochs if row.get("commit")))

    @property
    def rate(self) -> float:
        """Images per second, the median over epochs: the first one warms up, others may have shared the machine."""
        return median(float(row["images_per_second"]) for row in self.epochs)


def read(folder: Path) -> Run:
    """The run in a folder."""
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder} is not a run directory (no {CONFIG}): name folders that `gradreg train` wrote.")
    run = RunDirectory(folder)
    run.check_weights()
    settings, epochs = run.config(), run.metrics()
    if not epochs:
        raise DataError(f"{folder} holds a run without a finished epoch (metrics.jsonl): nothing to compare.")
    for row in epochs:
        if missing := [name for name in _COMPARED if name not in row]:
            raise DataError(
                f"{folder} has no {missing[0]} of epoch {row['epoch']} in metrics.jsonl: nothing to compare."
            )
    return Run(folder.resolve().name, flat(settings), tuple(epochs))


def middle(runs: Sequence[Run]) -> Run:
    """The centre of a sweep: of the commonest kind of objective, the run that differs least from all the others.

    The first of equals. A run of a rarer kind differs from the others in its kind alone, and would seem nearest.
    """
    kinds = [run.settings.get("objective.name") for run in runs]
    commonest = max(kinds, key=kinds.count)
    candidates = [run for run, kind in zip(runs, kinds, strict=True) if kind == commonest]
    return min(candidates, key=lambda run: sum(len(differences(other.settings, run.settings)) for other in runs))


def runs_table(runs: Sequence[Run]) -> Table:
    """One row per run, in the order given."""
    if not runs:
        raise DataError("There is no run to compare: name the folders that `gradreg train` wrote.")
    base, probes = middle(runs), list(dict.fromkeys(run.probe for run in runs))
    # Old runs have no record of their commit; a column of dashes says nothing.
    commit = (Column("commit", "Of the code that trained it."),) if any(run.commits for run in runs) else ()
    return Table(
        "runs",
        "Training runs",
        f"Accuracy at the best epoch of every run, on {images(int(run.best['held_out']) for run in runs)} held out of "
        f"the training set ({images(int(run.best['probed']) for run in runs)} under the probe, which selects the "
        "epoch). Below: 95 % Clopper-Pearson intervals.",
        (
            Column(f"differs from {base.name} in", "The run that has most in common with all the others."),
            Column("clean", "Accuracy on held-out images.", "high"),
            *(column for probe in probes for column in _probe_columns(probe)),
            Column("‖∇ℓ‖", "Mean dual norm of the input gradient of the loss.", "low"),
            Column("epoch", "The best epoch, of all that were run."),
            Column("× undefended", "Training time per image over that of the undefended run here.", "low"),
            *commit,
        ),
        tuple(
            Row(run.name, (*_figures(run, runs, base, probes), *(word(run.commits or UNKNOWN) for _ in commit)))
            for run in runs
        ),
    )


def cost(run: Run, among: Sequence[Run]) -> float | None:
    """Training time per image over that of the undefended run of the same network and machine; None without one."""
    for other in among:
        alike = _network(other) == _network(run) and other.machine == run.machine
        if alike and other.settings.get("objective.name") == "undefended":
            return other.rate / run.rate
    return None


def _probe_columns(probe: str) -> tuple[Column, ...]:
    return (
        Column(f"probe {probe}".rstrip(), "Accuracy under the run's probe, a short PGD.", "high"),
        Column(f"probe {probe}".rstrip() + ", last epoch", "Accuracy under the probe after the last epoch.", "high"),
        Column(
            f"one step {probe}".rstrip(),
            "Accuracy under a single step; far above the probe: catastrophic overfitting.",
        ),
    )


def _probed(run: Run) -> tuple[Cell, ...]:
    best, last = run.best, run.epochs[-1]
    return _share(best, "probe", "probed"), _share(last, "probe", "probed"), _share(best, "single_step", "probed")


def _figures(run: Run, among: Sequence[Run], base: Run, probes: Sequence[str]) -> tuple[Cell, ...]:
    best = run.best
    return (
        word(changes_text(differences(run.settings, base.settings)) or "nothing"),
        _share(best, "clean", "held_out"),
        # Accuracies under attacks of different radii do not compare.
        *(cell for probe in probes for cell in (_probed(run) if probe == run.probe else (NOTHING,) * 3)),
        number(best.get("grad_norm")),
        word(f"{best['epoch']} of {run.epochs[-1]['epoch']}"),
        number(cost(run, among), unit="×"),
    )


def _share(row: Mapping[str, Any], key: str, of: str) -> Cell:
    value, n = row.get(key), int(row[of])
    if value is None:
        return Cell(UNKNOWN, None)
    found = counted(round(value * n), n)
    return Cell(percent(value), float(value), interval(found.low, found.high))


def _network(run: Run) -> tuple[Any, ...]:
    return tuple(run.settings.get(key) for key in ("model.name", "data", "channels_last", "compile"))
