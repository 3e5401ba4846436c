"""How far a run has come, as its checkpoints say it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gradreg.codec import join
from gradreg.columns import check_number
from gradreg.errors import RunError
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


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
