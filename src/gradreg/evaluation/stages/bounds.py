"""The L- and ω-bound of each image, and the calibrated one."""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from torch import Tensor

from gradreg.bounds import (
    Bound,
    BoundsError,
    Regularity,
    bounds,
    conformal_scale,
    cross_calibrated,
    estimate_regularity,
)
from gradreg.bounds.extremes import MIN_BLOCKS
from gradreg.errors import DataError
from gradreg.evaluation.options import FEWEST_IN_BLOCK
from gradreg.evaluation.record import Bounded, Calibrated
from gradreg.evaluation.work import Work
from gradreg.norms import Threat
from gradreg.progress import Progress
from gradreg.reading import opened


@dataclass(frozen=True)
class Bounds:
    """The bounds, or why there are none."""

    bounded: Bounded | None
    refusal: str
    score: "_Score | None" = None


@dataclass(frozen=True)
class _Score:
    """What is calibrated, per image."""

    values: Tensor


@dataclass(frozen=True)
class _Kept:
    """The file that a regularity was saved to, so that no other passes for it."""

    sha256: str


def bounding(work: Work, threat: Threat) -> Bounds:
    """Estimate L and ω, around the test images or on training images, then bound the test images."""
    stage = f"bounds.{threat.name}"
    found: Bounds = work.ledger.once(stage, Bounds, lambda: _bounds(work, threat, stage))
    return found


def calibrated(work: Work, found: Bounds, distance: Tensor) -> Bounded | None:
    """The bounds with those calibrated by the attacks, which were made anyway: each half of the images by the other."""
    bounded, score, alpha = found.bounded, found.score, work.options.calibration_alpha
    if bounded is None or score is None:
        return bounded
    try:
        bound = cross_calibrated(score.values, distance, alpha)
        scale = conformal_scale(score.values, distance, alpha)
    except BoundsError as refusal:
        return replace(bounded, uncalibrated=f"Half of the images calibrates the other half. {refusal}")
    n = min(int((half > 0).sum()) for half in (distance[::2], distance[1::2]))
    return replace(bounded, calibrated=Calibrated(bound, alpha, scale, n))


def bound_again(work: Work, threat: Threat) -> Bound:
    """The bounds in full, from the regularity that was estimated for `bounding`."""
    return _bound(work, _kept(work, threat) or _estimated(work, threat, None))


def _bounds(work: Work, threat: Threat, stage: str) -> Bounds:
    timer = work.ledger.timer(stage)
    kept = _kept(work, threat)  # a damaged file is an error, and no reason why there are no bounds
    try:
        with work.reporter.bar(f"bounds {threat.name}") as progress:
            regularity = kept or _estimated(work, threat, timer.watching(progress))
        bound = _bound(work, regularity)
        return Bounds(_bounded(bound, regularity, timer.seconds), "", _Score(bound.score.cpu()))
    except (BoundsError, DataError) as refusal:
        return Bounds(None, str(refusal))


def _kept(work: Work, threat: Threat) -> Regularity | None:
    """The one that was estimated before an interruption."""
    noted: _Kept | None = work.ledger.load(_name(threat), _Kept)
    path = _path(work, threat)
    if noted is None or path is None or not path.is_file():
        return None
    if _digest(path) != noted.sha256:
        raise DataError(f"{path} is damaged, or of another evaluation: delete it to estimate again.")
    return Regularity.load(path, threat)


def _estimated(work: Work, threat: Threat, progress: Progress | None) -> Regularity:
    """Around the test images or on training images; kept, since that takes long."""
    method = work.options.regularity
    x, y, calibration = work.inputs.x, work.inputs.y, work.inputs.calibration
    if method != "local":
        if calibration is None:
            raise BoundsError(
                "There are no training images to estimate L and ω on; pass a whole data set, or calibration=."
            )
        x, y = (part.to(x.device) for part in calibration.read())
    found = estimate_regularity(
        work.classifier,
        (x, y),
        threat,
        method=method,
        topk=work.options.topk,
        block_size=_block_size(len(x)),
        seed=work.options.seed,
        batch_size=work.options.batch_size,
        progress=progress,
    )
    path = _path(work, threat)
    if work.ledger.writes and path is not None:
        found.save(path)
        work.ledger.save(_name(threat), _Kept(_digest(path)))
    return found


def _name(threat: Threat) -> str:
    return f"regularity.{threat.name}"


def _path(work: Work, threat: Threat) -> Path | None:
    return work.ledger.path(f"{_name(threat)}.safetensors")


def _digest(path: Path) -> str:
    with opened(path) as file:
        return sha256(file.read()).hexdigest()


def _block_size(images: int) -> int:
    """The usual 32 where that gives enough blocks for a fit, fewer for fewer images, but at least 8."""
    return max(FEWEST_IN_BLOCK, min(32, images // MIN_BLOCKS))


def _bound(work: Work, regularity: Regularity) -> Bound:
    return bounds(work.classifier, work.inputs.x, work.inputs.y, regularity, batch_size=work.options.batch_size)


def _bounded(bound: Bound, regularity: Regularity, seconds: float) -> Bounded:
    omega = regularity.omega.mean(0) if regularity.per_image else regularity.omega
    return Bounded(
        gradient_norm=bound.grad_norm.cpu(),
        lipschitz_bound=bound.lipschitz.cpu(),
        omega_bound=bound.omega.cpu(),
        method=regularity.method,
        lipschitz=float(regularity.lipschitz.mean()),
        eps=tuple(regularity.eps.tolist()),
        omega=tuple(omega.tolist()),
        calibration_images=len(regularity.keys),
        flags=bound.flags,
        seconds=seconds,
    )
