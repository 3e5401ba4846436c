"""Checkpoints: one safetensors file each, with the numbers as JSON in its header. No pickle anywhere."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from gradreg import storage
from gradreg.errors import DataError
from gradreg.errors import RunError

KEPT = 2
_KIND = "checkpoint of format 1"


@dataclass(frozen=True)
class State:
    """Tensors by name and a table of numbers: all that continuing depends on."""

    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]


def write(path: Path, state: State) -> None:
    """Write beside and rename; a failure leaves what was there."""
    try:
        storage.write(path, _KIND, state.tensors, state.numbers)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} could not be written ({error}): free some space or choose another disk.") from error


def read(path: Path) -> State:
    """A checkpoint as it was written; a truncated or foreign file is refused."""
    try:
        return State(*storage.read(path, _KIND))
    except DataError as error:
        raise RunError(f"{path} is truncated or damaged ({error}).") from error


class Generations:
    """The newest checkpoints of a run, named by their step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """Newest first."""
        return sorted(self.folder.glob("state-*.safetensors"), reverse=True)

    def save(self, state: State, *, alone: bool = False) -> None:
        """Add a generation and drop those that are now too old; all others if this one is to stand `alone`."""
        newest = self.folder / f"state-{state.numbers['step']:09d}.safetensors"
        write(newest, state)
        others = [path for path in self.paths() if path != newest]
        for path in others if alone else others[KEPT - 1 :]:
            path.unlink(missing_ok=True)

    def sound(self) -> Iterator[tuple[State, list[str]]]:
        """The readable generations, newest first, each with what was wrong with those passed over."""
        passed_over: list[str] = []
        for path in self.paths():
            try:
                yield read(path), list(passed_over)
            except RunError as error:
                passed_over.append(str(error))
