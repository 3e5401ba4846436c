"""Checkpoints: one safetensors file each, with the numbers as JSON in its header. No pickle anywhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gradreg import storage
from gradreg.errors import ConfigError, DataError, GradregError, RunError, words_of
from gradreg.reading import one_sentence

_KEPT = 2
_KIND = "checkpoint of format 1"


@dataclass(frozen=True)
class State:
    """Tensors by name and a table of numbers: everything that a resumed run depends on."""

    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]


def write(path: Path, state: State) -> None:
    """Write a checkpoint; a failure leaves the previous file."""
    storage.write(path, _KIND, state.tensors, state.numbers)


def read(path: Path) -> State:
    """A checkpoint as it was written; a truncated or foreign file raises a RunError."""
    try:
        return State(*storage.read(path, _KIND))
    except DataError as error:
        raise RunError(f"{path} is truncated or damaged ({words_of(error)}).") from error


class Generations:
    """The newest checkpoints of a run, named by their step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """Newest first."""
        return sorted(self.folder.glob("state-*.safetensors"), reverse=True)

    def save(self, state: State, *, only: bool = False) -> None:
        """Add a checkpoint and delete those that are too old; with `only`, delete all others."""
        newest = self.folder / f"state-{state.numbers['step']:09d}.safetensors"
        write(newest, state)
        others = [path for path in self.paths() if path != newest]
        for path in others if only else others[_KEPT - 1 :]:
            path.unlink(missing_ok=True)

    def restore(self, apply: Callable[[State], None]) -> list[str]:
        """Apply the newest checkpoint that can be read and applied; the errors of those that could not.

        A ConfigError of `apply` is passed on: not the file is at fault, but what it is to be continued with.
        """
        errors: list[str] = []
        for path in self.paths():
            try:
                state = read(path)
                with one_sentence(path, "it does not fit the run"):
                    apply(state)
                return errors
            except GradregError as error:
                if isinstance(error.__cause__, ConfigError):
                    raise error.__cause__ from None
                errors.append(str(error))
        if errors:
            raise RunError(
                f"None of the {len(errors)} checkpoints in {self.folder} can be read: start a new run. The newest: "
                f"{errors[0]}"
            )
        return errors
