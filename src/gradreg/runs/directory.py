"""The run directory: what a run is known by once it is over.

config.toml              the resolved recipe
metrics.jsonl            one line an epoch
last.safetensors         the weights after the newest epoch, best.safetensors those of the best one
state-….safetensors      the newest two checkpoints, from which the run can be continued
rollback.safetensors     the checkpoint of the best epoch, if the recipe wants to be able to go back to it
"""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from gradreg.errors import ConfigError
from gradreg.storage import replacing
from gradreg.config import toml
from gradreg.runs.checkpoints import Generations, State, read, write
from gradreg.errors import RunError

# What may differ between the parts of one run: it changes where and how fast, not what is computed.
MACHINE = ("device", "workers", "save_minutes", "tensorboard")

CONFIG = "config.toml"
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}")


class RunDirectory:
    """A folder of the files above; every one is replaced as a whole, never written over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generations = Generations(folder)

    def start(self, config: Mapping[str, Any]) -> None:
        """Begin in an empty folder; one that holds anything is refused."""
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise RunError(f"{self.folder} is not empty: choose another --run, or continue that run with --resume.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._replace(CONFIG, toml.dumps(config))
        except OSError as error:
            raise RunError(f"{self.folder} cannot be written to ({error}).") from error

    def config(self) -> dict[str, Any]:
        """The recipe that the run was started with."""
        path = self.folder / CONFIG
        if not path.is_file():
            raise RunError(f"{self.folder} holds no run (there is no config.toml): start one without --resume.")
        return toml.parse(path.read_text(encoding="utf-8"), str(path))

    def check_same(self, config: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Refuse to continue with other settings than those `before`, that the run began with."""
        for key in sorted(before.keys() | config.keys()):
            if key not in MACHINE and before.get(key) != config.get(key):
                raise ConfigError(
                    f"{key} is {_shown(before.get(key))} in {self.folder} and {_shown(config.get(key))} now, but a "
                    f"resumed run keeps its settings (all but {', '.join(MACHINE)}): start a new run instead."
                )

    def metrics(self) -> list[dict[str, Any]]:
        """One table an epoch; a line that a kill cut short is passed over."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = []
        for line in lines:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        """Append the line of an epoch."""
        try:
            with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(_line(row))
        except OSError as error:
            raise RunError(f"metrics.jsonl could not be written ({error}).") from error

    def sweep(self) -> None:
        """Remove what a kill in the middle of a write left behind."""
        for path in self.folder.glob(".*"):
            if _TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def rewind_metrics(self, epochs: int) -> None:
        """Keep the lines of that many epochs: a run continues from a checkpoint that may be older than its metrics."""
        kept = "".join(_line(row) for row in self.metrics() if row["epoch"] <= epochs)
        self._replace("metrics.jsonl", kept)

    def save_weights(self, name: str, weights: Mapping[str, Tensor], row: Mapping[str, Any]) -> None:
        """`last` or `best`, with the epoch's metrics in the header."""
        write(self.folder / f"{name}.safetensors", State(weights, {"metrics": _finite(row)}))

    def weights(self, name: str) -> State:
        """`last` or `best`."""
        path = self.folder / f"{name}.safetensors"
        if not path.is_file():
            raise RunError(f"{path} does not exist: the run has not finished an epoch yet.")
        return read(path)

    def save_rollback(self, state: State) -> None:
        """Remember where to go back to."""
        write(self.folder / "rollback.safetensors", state)

    def rollback(self) -> State | None:
        """Where to go back to, if any epoch was good."""
        path = self.folder / "rollback.safetensors"
        return read(path) if path.is_file() else None

    def _replace(self, name: str, text: str) -> None:
        with replacing(self.folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(_finite(row), allow_nan=False) + "\n"


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN; a number that is none is null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)
