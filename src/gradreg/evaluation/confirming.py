"""The reference AutoAttack at chosen radii: is an image really robust that our attacks could not break?"""

from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from gradreg import storage
from gradreg.attacks import autoattack
from gradreg.attacks.run import Progress
from gradreg.errors import ConfigError
from gradreg.evaluation.record import Confirmed
from gradreg.evaluation.work import Work
from gradreg.norms import ThreatName

# What a kill can cost, in images. It takes all images of a chunk at once, so small chunks would be slow.
CHUNK = 100
# Its targeted losses compare the four largest logits.
CLASSES = 4

_SHARE = "chunk of a confirmation"


@dataclass(frozen=True)
class Answers:
    """What AutoAttack makes of each image; the costs are the same for all images of a chunk."""

    robust: Tensor
    forwards: Tensor
    backwards: Tensor
    seconds: float


def check(work: Work, classes: int) -> None:
    """Refuse now what would fail after hours of other stages."""
    asked = [_stage(work, threat, eps) for threat, radii in work.options.autoattack.items() for eps in radii]
    if not asked or work.agreed(all(map(work.state.finished, asked))):
        return
    if classes < CLASSES:
        raise ConfigError(
            f"AutoAttack needs {CLASSES} classes and the model has {classes}: evaluate it without --autoattack."
        )
    try:
        import_module("pyautoattack")
    except ImportError as error:
        raise ConfigError(
            "To confirm by AutoAttack takes a package that is not installed: pip install pyautoattack, or leave "
            "--autoattack out."
        ) from error


def confirmation(work: Work, threat: ThreatName, eps: float) -> Confirmed:
    """AutoAttack on all images at one radius."""
    found = _answers(work, threat, eps)
    forwards, backwards = (float(costs.double().mean()) for costs in (found.forwards, found.backwards))
    version = work.options.autoattack_version
    return Confirmed("autoattack", version, eps, found.robust, forwards, backwards, found.seconds)


def _answers(work: Work, threat: ThreatName, eps: float) -> Answers:
    stage, n = _stage(work, threat, eps), len(work.material.x)
    done = work.state.load(stage, Answers) if work.processes.first else None
    finished, timer = work.agreed(done is not None), work.state.timer(stage)
    if done is not None and work.processes.world == 1:
        return done
    # Whole numbers, since processes cannot add truth values.
    parts = {name: torch.zeros(n, dtype=torch.int64) for name in ("robust", "forwards", "backwards")}
    if done is not None:
        parts = {name: getattr(done, name).long() for name in parts}
    elif not finished:
        with work.teller.bar(f"autoattack {threat} {eps:.3g}") as report:
            _fill(work, threat, eps, parts, timer.watching(report))
    whole = work.together(parts)
    seconds = timer.seconds if done is None else done.seconds
    found = Answers(whole["robust"].bool(), whole["forwards"], whole["backwards"], seconds)
    if not finished:
        work.finish(stage, found)
    return found


def _fill(work: Work, threat: ThreatName, eps: float, parts: dict[str, Tensor], report: Progress) -> None:
    """Chunks in turn to the processes: which images share a chunk depends on their number and the batch size only."""
    n, size = len(work.material.x), max(CHUNK, work.options.batch_size)
    chunks = torch.arange(n).tensor_split(-(-n // size))[work.processes.rank :: work.processes.world]
    done, total = 0, sum(map(len, chunks))
    for rows in chunks:
        for name, values in _chunk(work, threat, eps, rows).items():
            parts[name][rows] = values.long()
        done += len(rows)
        report(done, total)


def _chunk(work: Work, threat: ThreatName, eps: float, rows: Tensor) -> dict[str, Tensor]:
    """From the file it was saved to, or attacked."""
    start, material, options = int(rows[0]), work.material, work.options
    # `Work.finish` drops what is named like this.
    name = f"{_stage(work, threat, eps)}.{start}+{len(rows)}-of-{len(material.x)}.safetensors"
    path = work.state.path(name)
    if path.is_file():
        return storage.read(path, _SHARE)[0]
    there = rows.to(material.x.device)
    result = autoattack(
        work.classifier,
        material.x[there],
        material.y[there],
        eps=eps,
        threat=threat,
        version=options.autoattack_version,
        seed=options.seed + start,
        batch_size=options.batch_size,
    ).to("cpu")
    found = {"robust": result.distance.isinf(), "forwards": result.forwards, "backwards": result.backwards}
    storage.write(path, _SHARE, found, {})
    return found


def _stage(work: Work, threat: ThreatName, eps: float) -> str:
    return f"autoattack.{threat}.{eps!r}.{work.options.autoattack_version}"
