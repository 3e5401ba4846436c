"""How far a run has come, as its checkpoints say it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from gradreg.checks.scalars import shown
from gradreg.codec import join
from gradreg.columns import check_number
from gradreg.errors import RunError
from gradreg.runs.directory import RunDirectory
from gradreg.runs.metrics import check_row
from gradreg.training.monitors import HeldOutMetrics

ROLLBACKS = 3
"""How often a run goes back to its best epoch at most."""


@dataclass
class Position:
    """How far a run has come; the field names are keys of checkpoints."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Finished batches of this epoch."""
    seconds: float = 0.0
    """Spent in steps and waiting for batches; held-out evaluations are not counted."""
    rollbacks: int = 0
    best: int | None = None
    """Which of `readings` belongs to the epoch in best.safetensors."""
    readings: list[dict[str, Any]] = field(default_factory=list)
    """The held-out metrics of all epochs."""


def position_in(numbers: Mapping[str, Any]) -> Position:
    """The position in a checkpoint; all of it must be there, since a default would silently train from the start."""
    if missing := [each.name for each in fields(Position) if each.name not in numbers]:
        raise RunError(f"{missing[0]!r} is missing.")
    found: Position = join(Position, numbers, {})
    for name in ("step", "epoch", "batch", "seconds"):
        check_number(name, getattr(found, name), 0)
    check_number("rollbacks", found.rollbacks, 0, ROLLBACKS)
    if len(found.readings) != found.epoch or found.step < found.batch:
        raise RunError(f"It has {len(found.readings)} readings after {found.epoch} epochs and {found.step} steps.")
    if found.best is not None:
        check_number("best", found.best, 0, found.epoch - 1)
    for row, reading in enumerate(found.readings):
        join(HeldOutMetrics, reading, {}, f"readings.{row}")
        # Gradients of a network that diverged are not finite; metrics.jsonl has null for them.
        check_row({name: value for name, value in reading.items() if not _is_infinite(value)})
    return found


def check_step(position: Position, planned: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a step that the batches do not add up to: those planned for its epochs, or as many as metrics say."""
    made, epochs = position.step - position.batch, position.epoch
    if made != planned and made not in [row.get("step") for row in rows if row["epoch"] == epochs]:
        raise RunError(
            f"step must be {planned + position.batch} after {epochs} epochs and {position.batch} batches; got "
            f"{shown(position.step)}."
        )


def without_checkpoint(run: RunDirectory, epochs: int) -> Position:
    """Where a run without checkpoints stands: at its beginning, or at its end if only they found no room."""
    rows = run.metrics()
    if not rows:
        _check_beginning(run)
    if len(rows) <= 1:  # the first epoch is recorded a moment before the first checkpoint is saved
        return Position()
    if not run.is_finished(epochs):
        raise RunError(f"{run.folder} has finished {len(rows)} epochs and has no checkpoint: start a new run.")
    return Position(step=rows[-1]["step"], epoch=epochs)


def _check_beginning(run: RunDirectory) -> None:
    """Refuse to begin again where a later epoch left weights: what says so is missing, and they would be lost."""
    if not (run.folder / "last.safetensors").exists():
        return
    epoch = run.weights("last").numbers["metrics"].get("epoch")
    if epoch != 1:
        raise RunError(
            f"{run.folder} has weights of epoch {shown(epoch)} and neither metrics nor a checkpoint, so a part of it "
            "is missing: restore it, or start a new run."
        )


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
