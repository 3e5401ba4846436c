"""The bounds of the images, and the diagnosis, which compares them with what the attacks found."""

from dataclasses import dataclass, replace

from gradreg.attacks.run import Progress
from gradreg.bounds import Bound, BoundsError, Regularity, bounds, estimate_regularity
from gradreg.bounds.extremes import MIN_BLOCKS
from gradreg.diagnosis.flags import Flag
from gradreg.errors import DataError
from gradreg.evaluation.attacking import KEPT, Attacks
from gradreg.evaluation.record import Bounded
from gradreg.evaluation.work import Work
from gradreg.norms import ThreatName


@dataclass(frozen=True)
class Bounds:
    """The bounds, or why there are none."""

    bounded: Bounded | None
    refusal: str


def bounding(work: Work, threat: ThreatName) -> Bounds:
    """L and ω on training images, then the bounds of the test images."""
    stage = f"bounds.{threat}"
    done = work.state.load(stage, Bounds)
    if done is not None:
        return done
    timer = work.state.timer(stage)
    try:
        with work.teller.bar(f"bounds {threat}") as report:
            regularity = _regularity(work, threat, timer.watching(report))
        bound = _bound(work, regularity)
        found = Bounds(_bounded(bound, regularity, timer.seconds), "")
    except (BoundsError, DataError) as refusal:
        found = Bounds(None, str(refusal))
    work.state.save(stage, found)
    return found


def _regularity(work: Work, threat: ThreatName, report: Progress | None) -> Regularity:
    """From the file it was saved to, or estimated."""
    path, method = work.state.path(f"regularity.{threat}.safetensors"), work.options.regularity
    if path.is_file():
        return Regularity.load(path)
    x, y, calibration = work.material.x, work.material.y, work.material.calibration
    if method != "local":
        if calibration is None:
            raise BoundsError(
                "There are no training images to estimate L and ω on: pass a whole data set, or calibration=."
            )
        x, y = (part.to(x.device) for part in calibration.read())
    found = estimate_regularity(
        work.classifier,
        (x, y),
        threat,
        method=method,
        block_size=block_size(len(x)),
        seed=work.options.seed,
        batch_size=work.options.batch_size,
        progress=report,
    )
    if work.processes.first:
        found.save(path)
    return found


def block_size(images: int) -> int:
    """The usual 32 where it makes enough blocks for a fit, less for fewer images, but never below 8 of them."""
    return max(8, min(32, images // MIN_BLOCKS))


def _bound(work: Work, regularity: Regularity) -> Bound:
    return bounds(work.classifier, work.material.x, work.material.y, regularity, batch_size=work.options.batch_size)


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


@dataclass(frozen=True)
class Flags:
    """What the diagnosis found."""

    flags: tuple[Flag, ...]


def diagnosis(work: Work, threat: ThreatName, found: Attacks, bounded: Bounds) -> Flags:
    """Is it real? The first images, with what attacks and bounds say of them."""
    stage = f"flags.{threat}"
    done = work.state.load(stage, Flags)
    if done is not None:
        return done
    from gradreg.diagnosis import diagnose

    n = len(found.adversarial)
    bound = None
    if bounded.bounded is not None:
        bound = _first(_bound(work, _regularity(work, threat, None)), n)
    x, y, options = work.material.x[:n], work.material.y[:n], work.options
    with work.teller.bar(f"diagnosis {threat}") as report:
        flags = diagnose(
            work.classifier,
            x,
            y,
            threat=threat,
            seed=options.seed,
            attack_result=found.result(threat, x.device),
            bound=bound,
            images=KEPT,
            batch_size=options.batch_size,
            progress=report,
        )
    result = Flags(tuple(flags))
    work.state.save(stage, result)
    return result


def _first(bound: Bound, n: int) -> Bound:
    """The bounds of the first images."""
    tensors = ("lipschitz", "omega", "censored", "margin", "grad_norm", "zero_gradient")
    return replace(bound, **{name: getattr(bound, name)[:n] for name in tensors})
