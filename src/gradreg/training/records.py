"""What each epoch leaves in the run directory. What a full disk refuses is kept in memory and written later."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from gradreg.runs.checkpoints import State
from gradreg.runs.directory import RunDirectory


class Records:
    """Metrics and weights on their way to a run directory, in the order in which they were made."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._owed: dict[str, Callable[[], None]] = {}
        self._steps: list[dict[str, float]] = []

    def add(self, row: Mapping[str, Any], weights: Mapping[str, Tensor], *, best: bool, rollback: State | None) -> None:
        """An epoch: its metrics, its weights and, if it is the best so far, what a rollback would restore."""
        # Copies, since training goes on before they may be written.
        kept = _copies(weights)
        self._owed[f"metrics {row['epoch']}"] = partial(self._run.add_metrics, row)
        for name in ("last", "best") if best else ("last",):
            self._owed[name] = partial(self._run.save_weights, name, kept, row)
        if rollback is not None:
            state = State(_copies(rollback.tensors), rollback.numbers)
            self._owed["rollback"] = partial(self._run.save_rollback, state)

    def add_step(self, step: int, epoch: int, loss: Tensor, scalars: Mapping[str, Tensor]) -> None:
        """What one step logged; an accelerator is waited for."""
        values = {name: value.item() for name, value in {"loss": loss.detach(), **scalars}.items()}
        self._steps.append({"step": step, "epoch": epoch, **values})

    def settle(self) -> None:
        """Write all that is owed. A StorageError says what still cannot be written; it stays owed."""
        if self._steps:
            self._run.add_steps(self._steps)
            self._steps = []
        for name in list(self._owed):
            self._owed[name]()
            del self._owed[name]

    def forget(self) -> None:
        """Drop what is owed: the run goes back to before it was made."""
        self._owed.clear()
        self._steps = []


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
