"""The run directory.

config.toml              the resolved recipe
metrics.jsonl            one line per epoch
steps.jsonl              one line per so many steps, if the recipe asks for it
last.safetensors         the weights after the newest epoch
best.safetensors         the weights after the best epoch
state-….safetensors      the newest two checkpoints, from which the run can be resumed
rollback.safetensors     the checkpoint of the best epoch, if the recipe asks for rollbacks
.lock                    locked while a process trains
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from gradreg.checks.calls import validated
from gradreg.checks.scalars import shown
from gradreg.config import tables, toml
from gradreg.errors import ConfigError, RunError
from gradreg.locks import LOCK, lock
from gradreg.reading import naming, read_text, read_toml
from gradreg.runs import metrics
from gradreg.runs.checkpoints import Generations, State, read, write
from gradreg.runs.settings import Config
from gradreg.storage import checksum
from gradreg.writing import is_temporary, write_text

# Settings that may change when a run is resumed: where and how fast it computes, not what.
MACHINE = ("device", "workers", "save_minutes", "tensorboard")

CONFIG = "config.toml"
_METRICS = "metrics.jsonl"
_STEPS = "steps.jsonl"
_BOTH = ("last", "best")
# What an epoch that is trained again after a kill has too; times differ.
_REPEATED = ("step", "clean")


class RunDirectory:
    """A folder of the files above; each file is replaced as a whole, never overwritten in place."""

    @validated
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generations = Generations(folder)

    def check_empty(self) -> None:
        """Raise unless a run can be started here; what a killed process left does not count."""
        if not self.folder.exists():
            return
        left = () if not self.folder.is_dir() else (path for path in self.folder.iterdir() if not is_temporary(path))
        if not self.folder.is_dir() or any(path.name != LOCK for path in left):
            raise RunError(f"{self.folder} is not empty: choose another --run, or continue that run with --resume.")

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes from writing to the run."""
        return lock(self.folder)

    def start(self, config: Mapping[str, Any]) -> None:
        """Start a run in an empty folder."""
        self.check_empty()
        write_text(self.folder / CONFIG, toml.dumps(config))

    def config(self) -> dict[str, Any]:
        """The recipe that the run was started with."""
        path = self.folder / CONFIG
        if not path.is_file():
            raise RunError(f"{self.folder} holds no run (there is no {CONFIG}): start one without --resume.")
        return toml.parse(read_toml(path), str(path))

    def settings(self) -> Config:
        """The recipe as checked settings."""
        with naming(self.folder / CONFIG, "its settings cannot be read"):
            return tables.build(Config, self.config())

    @cached_property
    def key(self) -> str:
        """A fingerprint of the recipe; weights and checkpoints carry that of their run."""
        return _recipe_key(self.config())

    def check_same(self, config: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Raise if `config` differs from `before`, the settings that the run was started with."""
        for key in sorted(before.keys() | config.keys()):
            if key not in MACHINE and before.get(key) != config.get(key):
                raise ConfigError(
                    f"{key} must be {_shown(before.get(key))} to resume {self.folder}; got {_shown(config.get(key))}. "
                    f"A resumed run keeps its settings except {', '.join(MACHINE)}: start a new run instead."
                )

    def metrics(self) -> list[dict[str, Any]]:
        """One table per epoch; a last line cut short by a kill is skipped."""
        path = self.folder / _METRICS
        return metrics.parse(read_text(path), path) if os.path.lexists(path) else []

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one epoch."""
        path = self.folder / _METRICS
        before = read_text(path) if path.exists() else ""
        write_text(path, before[: before.rfind("\n") + 1] + _line(row))

    def rewind_metrics(self, epochs: int) -> None:
        """Keep the first `epochs` epochs: the checkpoint that a run resumes from may be older than its metrics."""
        kept = "".join(_line(row) for row in self.metrics() if row["epoch"] <= epochs)
        write_text(self.folder / _METRICS, kept)

    def steps(self) -> list[dict[str, Any]]:
        """One table per step that was written down."""
        path = self.folder / _STEPS
        return metrics.parse_steps(read_text(path), path) if os.path.lexists(path) else []

    def add_steps(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append some steps."""
        path = self.folder / _STEPS
        before = read_text(path) if path.exists() else ""
        write_text(path, before[: before.rfind("\n") + 1] + "".join(map(_line, rows)))

    def rewind_steps(self, step: int) -> None:
        """Keep the steps up to that one."""
        if os.path.lexists(self.folder / _STEPS):
            write_text(self.folder / _STEPS, "".join(_line(row) for row in self.steps() if row["step"] <= step))

    def save_weights(
        self,
        name: str,
        weights: Mapping[str, Tensor],
        row: Mapping[str, Any],
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        """Save the weights `last` or `best`, with the metrics of the epoch and whose they are in the header.

        `recipe` is that of the run, by default as it stands in its config.
        """
        of = self.key if recipe is None else _recipe_key(recipe)
        write(self.folder / f"{name}.safetensors", State(weights, {"metrics": _finite(row), "name": name, "of": of}))

    def weights(self, name: str) -> State:
        """The weights `last` or `best`, with the metrics of their epoch; those of another run are refused."""
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            raise RunError(f"{path} does not exist: the run has not finished an epoch yet.")
        found = read(path)
        row = found.numbers.get("metrics")
        if not isinstance(row, Mapping):
            raise RunError(f"{path} is damaged: its header has no metrics. Restore it, or train again.")
        # Weights of before these were noted have neither.
        if found.numbers.get("name", name) != name:
            raise RunError(f"{path} must hold the {name} weights of the run; got {found.numbers['name']!r}.")
        if "of" in found.numbers and found.numbers["of"] != self.key:
            raise RunError(
                f"{path} was trained by another recipe than {CONFIG} beside it, or that was changed since: restore the "
                "one that belongs to it."
            )
        self._check_row(path, row)
        return found

    def check_weights(self) -> None:
        """Refuse a recipe or metrics that are not those of the weights, where a run is kept with these."""
        for name in _BOTH:
            if (self.folder / f"{name}.safetensors").is_file():
                self.weights(name)

    def _check_row(self, path: Path, row: Mapping[str, Any]) -> None:
        """Refuse weights of an epoch that the metrics lack or tell otherwise; a run may be kept without metrics."""
        rows, epoch = self.metrics(), row.get("epoch")
        same = next((each for each in rows if each["epoch"] == epoch), None)
        if rows and same is None:
            raise RunError(
                f"{path} has the weights of epoch {shown(epoch)}, and {_METRICS} beside it has {len(rows)} epochs: "
                "restore it, or finish the run with --resume."
            )
        for name in _REPEATED:
            if same is not None and same.get(name) != row.get(name):
                raise RunError(
                    f"{path} says another {name} of epoch {epoch} than {_METRICS} beside it: restore the one that "
                    "belongs to it."
                )

    def is_finished(self, epochs: int) -> bool:
        """Whether the metrics and weights of all epochs are there, as where only the checkpoints found no room."""
        rows = self.metrics()
        best = [row["epoch"] for row in rows if row.get("best")]
        if (
            len(rows) != epochs
            or not best
            or not all((self.folder / f"{name}.safetensors").is_file() for name in _BOTH)
        ):
            return False
        saved = [self.weights(name).numbers["metrics"].get("epoch") for name in _BOTH]
        return saved == [epochs, best[-1]]

    def save_rollback(self, state: State) -> None:
        """Save the checkpoint that a rollback restores."""
        write(self.folder / "rollback.safetensors", state)

    def rollback(self) -> State | None:
        """The checkpoint that a rollback restores; None before the first good epoch."""
        path = self.folder / "rollback.safetensors"
        return read(path) if path.is_file() else None


def _recipe_key(config: Mapping[str, Any]) -> str:
    """A fingerprint of a run's recipe as TOML holds it, without the settings that may change when it is resumed."""
    table = toml.parse(toml.dumps(config), CONFIG)
    return checksum({key: value for key, value in table.items() if key not in MACHINE})


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(_finite(row), allow_nan=False) + "\n"


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN or infinity: they become null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _shown(value: Any) -> str:
    return "unset" if value is None else repr(value)
