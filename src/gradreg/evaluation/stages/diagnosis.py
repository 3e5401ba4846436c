"""Is the robustness real? The tests for gradient masking, on the first images."""

from dataclasses import dataclass, replace

from gradreg.bounds import Bound, Calibration
from gradreg.diagnosis.diagnose import diagnose
from gradreg.diagnosis.flags import Flag
from gradreg.evaluation.options import EvaluationOptions
from gradreg.evaluation.record import Bounded, Calibrated
from gradreg.evaluation.stages.attacks import KEPT, Attacks
from gradreg.evaluation.stages.bounds import bound_again
from gradreg.evaluation.work import Work
from gradreg.norms import Threat


@dataclass(frozen=True)
class Flags:
    """What the diagnosis found."""

    flags: tuple[Flag, ...]


def diagnosis(work: Work, threat: Threat, found: Attacks, bounded: Bounded | None) -> tuple[Flag, ...]:
    """The flags, with the attacks' and the bounds' claims held against adversarial images."""
    kept: Flags = work.ledger.once(f"flags.{threat.name}", Flags, lambda: _diagnosis(work, threat, found, bounded))
    return kept.flags


def explain(work: Work, threat: Threat) -> tuple[Flag, ...]:
    """The flags of a model that cannot be attacked at all, to say why before the error does."""
    x, y, options = work.inputs.x[:KEPT], work.inputs.y[:KEPT], work.options
    return tuple(
        diagnose(
            work.classifier, x, y, threat=threat, topk=options.topk, seed=options.seed, batch_size=options.batch_size
        )
    )


def _diagnosis(work: Work, threat: Threat, found: Attacks, bounded: Bounded | None) -> Flags:
    n, options = len(found.adversarial), work.options
    bound = None if bounded is None else _first(_with(bound_again(work, threat), bounded.calibrated, options), n)
    x, y = work.inputs.x[:n], work.inputs.y[:n]
    with work.reporter.bar(f"diagnosis {threat.name}") as progress:
        flags = diagnose(
            work.classifier,
            x,
            y,
            threat=threat,
            eps=work.inputs.test_set.usual_radius(threat.name),
            topk=options.topk,
            seed=options.seed,
            attack_result=found.result(threat, options.topk, x.device),
            bound=bound,
            images=KEPT,
            batch_size=options.batch_size,
            progress=progress,
        )
    return Flags(tuple(flags))


def _first(bound: Bound, n: int) -> Bound:
    """The bounds of the first images."""
    tensors = ("lipschitz", "omega", "censored", "margin", "grad_norm", "zero_gradient", "score")
    return replace(bound, **{name: getattr(bound, name)[:n] for name in tensors})


def _with(bound: Bound, calibrated: Calibrated | None, options: EvaluationOptions) -> Bound:
    """The bounds with the calibrated ones, which are divided already."""
    if calibrated is None:
        return bound
    known = Calibration(calibrated.alpha, 1.0, 1.0, 1.0, options.attacks_name, calibrated.n, 0)
    return replace(bound, score=calibrated.bound.to(bound.score.device), calibration=known)
