"""The reference AutoAttack at chosen radii: does it break images that our attacks did not?"""

from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from gradreg.attacks import autoattack
from gradreg.errors import ConfigError
from gradreg.evaluation.record import Confirmed
from gradreg.evaluation.work import Work
from gradreg.norms import THREATS
from gradreg.progress import Progress

# Images that a kill can cost. AutoAttack takes all images of a chunk at once, so small chunks would be slow.
_CHUNK = 100
# Its targeted losses compare the four largest logits.
CLASSES = 4


@dataclass(frozen=True)
class Chunk:
    """What AutoAttack found on some of the images; whole numbers, since processes cannot add truth values."""

    robust: Tensor
    forwards: Tensor
    backwards: Tensor


def check(work: Work, classes: int) -> None:
    """Refuse now what would fail after hours of other stages."""
    confirmations = work.options.confirmations
    asked = [_stage(work, threat, eps) for threat, radii in confirmations.items() for eps in radii]
    if not asked or work.agreed(all(map(work.ledger.finished, asked))):
        return
    if classes < CLASSES:
        raise ConfigError(
            f"AutoAttack needs at least {CLASSES} classes; the model has {classes}. Evaluate without --autoattack."
        )
    try:
        import_module("pyautoattack")
    except ImportError as error:
        raise ConfigError(
            "Confirming with AutoAttack needs a package: pip install pyautoattack, or leave --autoattack out."
        ) from error


def confirmation(work: Work, threat: str, eps: float) -> Confirmed:
    """AutoAttack on all images at one radius."""
    n, version = len(work.inputs.x), work.options.autoattack_version
    blank = {name: torch.zeros(n, dtype=torch.int64) for name in ("robust", "forwards", "backwards")}

    def fill(columns: dict[str, Tensor], progress: Progress) -> None:
        _fill(work, threat, eps, columns, progress)

    found = work.per_image(_stage(work, threat, eps), f"autoattack {threat} {eps:.3g}", blank, fill)
    # The costs are the same for all images of a chunk.
    forwards, backwards = (float(found.values[name].double().mean()) for name in ("forwards", "backwards"))
    robust = found.values["robust"].bool()
    return Confirmed("autoattack", version, eps, robust, forwards, backwards, found.seconds)


def _fill(work: Work, threat: str, eps: float, columns: dict[str, Tensor], progress: Progress) -> None:
    """Chunks go to processes in turn; which images share one depends on their number and the batch size only."""
    n, size = len(work.inputs.x), max(_CHUNK, work.options.batch_size)
    chunks = torch.arange(n).tensor_split(-(-n // size))[work.processes.rank :: work.processes.world]
    done, total = 0, sum(map(len, chunks))
    for rows in chunks:
        found = _chunk(work, threat, eps, rows)
        for name, column in columns.items():
            column[rows] = getattr(found, name)
        done += len(rows)
        progress(done, total)


def _chunk(work: Work, threat: str, eps: float, rows: Tensor) -> Chunk:
    start, inputs, options = int(rows[0]), work.inputs, work.options

    def attacked() -> Chunk:
        there = rows.to(inputs.x.device)
        result = autoattack(
            work.classifier,
            inputs.x[there],
            inputs.y[there],
            eps=eps,
            threat=THREATS[threat],
            version=options.autoattack_version,
            seed=options.seed + start,
            batch_size=options.batch_size,
        ).to("cpu")
        return Chunk(result.distance.isinf().long(), result.forwards, result.backwards)

    # Named like other unfinished work, so that `Work.per_image` drops it in the end.
    name = f"{_stage(work, threat, eps)}.{start}+{len(rows)}-of-{len(inputs.x)}"
    found: Chunk = work.ledger.once(name, Chunk, attacked, own=True)
    return found


def _stage(work: Work, threat: str, eps: float) -> str:
    return f"autoattack.{threat}.{eps!r}.{work.options.autoattack_version}"
