"""Is this robustness real? All tests, one after the other, as far as each still makes sense."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradreg.attacks import AttackResult
from gradreg.attacks.run import Progress
from gradreg.bounds import Bound
from gradreg.classifier import Classifier
from gradreg.config.options import options_of, takes
from gradreg.diagnosis import contests, slopes, usage
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.claims import Claims, smoothed_certificates
from gradreg.diagnosis.contests import Contest
from gradreg.diagnosis.flags import Flag, left_out, make
from gradreg.diagnosis.options import DiagnosisOptions
from gradreg.errors import DataError, ModelError
from gradreg.penalty.passes import Model, RandomState
from gradreg.smoothing import Certificates

# These need no radius, and so make sense for pixels in any units and for a model that rolls dice.
POINTWISE: dict[str, Callable[[Case], Flag]] = {
    "zero-gradient-margin": slopes.zero_gradient_margin,
    "zero-gradient-cross-entropy": slopes.zero_gradient_cross_entropy,
    "saturated-loss": slopes.saturated_loss,
    "closed-loss-gap": slopes.closed_loss_gap,
}
NEARBY: dict[str, Callable[[Case], Flag]] = {
    "slope-mismatch": slopes.slope_mismatch,
    "slope-uncorrelated": slopes.slope_uncorrelated,
    "unstable-gradient": slopes.unstable_gradient,
}
SIMPLE = ("clean-accuracy", "randomised", "probabilities", "optimises-inside")
TOTAL = 3 + len(SIMPLE) + len(POINTWISE) + len(NEARBY) + len(contests.TESTS) + 1


@takes(DiagnosisOptions)
def diagnose(
    model: Model,
    x: Tensor,
    y: Tensor,
    options: DiagnosisOptions | None = None,
    *,
    attack_result: AttackResult | None = None,
    sound: Tensor | None = None,
    bound: Bound | None = None,
    certificates: Certificates | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> list[Flag]:
    """A flag for every test, "info" where it was passed; the first `images` images are looked at.

    What an attack refuses (train mode, probabilities, pixels outside the box, …) becomes a flag here. What was found
    by an attack, proved (`sound`), or estimated (`bound`) about all the images is compared with adversarial images.
    """
    chosen = options_of(DiagnosisOptions, options, keywords)
    norm, topk, classifier = chosen.norm, chosen.topk, Classifier.of(model)
    _check(x, y)
    claims = Claims(attack_result, sound, bound)
    claims.check(len(x), norm.name, topk)
    x, y = x.detach(), y.long()
    tally = _Tally(progress)
    tally.add(usage.train_mode(classifier))
    build = partial(Case, threat=norm, eps=chosen.radius, topk=topk, seed=chosen.seed, batch_size=chosen.batch_size)
    # A model that rolls dice takes them from the global stream, which stands where it stood afterwards.
    with RandomState.now(x.device).replayed(), usage.eval_mode(classifier):
        _examine(classifier, x, y, min(chosen.images, len(x)), build, claims, tally)
    if certificates is not None:
        tally.add(smoothed_certificates(certificates))
    return tally.finish()


@dataclass
class _Tally:
    """The flags so far, and how much that is of the work."""

    progress: Progress | None
    flags: list[Flag] = field(default_factory=list)

    def add(self, flag: Flag) -> Flag:
        self.flags.append(flag)
        if self.progress is not None:
            self.progress(min(len(self.flags), TOTAL - 1), TOTAL)
        return flag

    def finish(self) -> list[Flag]:
        if self.progress is not None:
            self.progress(TOTAL, TOTAL)
        return self.flags


def _examine(
    classifier: Classifier, x: Tensor, y: Tensor, images: int, build: "partial[Case]", claims: Claims, tally: _Tally
) -> None:
    first, labels, batch_size, topk = x[:images], y[:images], build.keywords["batch_size"], build.keywords["topk"]
    boxed = tally.add(usage.input_range(first, classifier.box)).severity != "error"
    logits = usage.clean_logits(classifier, first, batch_size)
    if int(y.min()) < 0 or int(y.max()) >= logits.shape[1]:
        raise DataError(
            f"Labels run from {int(y.min())} to {int(y.max())}, but the model has classes 0 to {logits.shape[1] - 1}."
        )
    if tally.add(usage.finite(logits)).severity == "error":
        rest = [*SIMPLE, *POINTWISE, *NEARBY, *contests.TESTS, *claims.names]
        tally.add(left_out(rest, "since logits are not finite"))
        return
    tally.add(usage.clean_accuracy(logits, labels, topk))
    fixed = tally.add(usage.randomised(classifier, first, logits, batch_size)).severity != "error"
    scores = tally.add(usage.probabilities(logits)).severity == "error"
    tally.add(usage.optimises_inside(classifier, first[:batch_size]))
    face = usage.attackable(classifier, first, log=scores)
    case = build(face, first, labels, usage.clean_logits(face, first, batch_size))
    trouble = "" if fixed else "since the model gives another answer each time"
    trouble = trouble if boxed else "since distances in such pixels mean nothing"
    broken = _attack(case, trouble, tally)
    if trouble and claims.names:
        tally.add(left_out(claims.names, trouble))
    elif claims.names:
        every = build(face, x, y, usage.clean_logits(face, x, batch_size))
        for flag in claims.flags(every, broken):
            tally.add(flag)


def _attack(case: Case, trouble: str, tally: _Tally) -> Tensor:
    """Gradients and attacks, on the correctly classified images; which of all were broken within ε is returned."""
    correct = case.correct
    broken = torch.zeros_like(correct)
    if not bool(correct.any()):
        tally.add(left_out([*POINTWISE, *NEARBY, *contests.TESTS], "since no image is classified correctly"))
        return broken
    case = case.select(correct)
    for test in POINTWISE.values():
        tally.add(test(case))
    if trouble:
        tally.add(left_out([*NEARBY, *contests.TESTS], trouble))
        return broken
    for test in NEARBY.values():
        tally.add(test(case))
    contest, names = Contest(case), contests.applicable(case)
    try:
        for name in names:
            tally.add(contests.TESTS[name](contest))
    except ModelError as error:
        made = {flag.code for flag in tally.flags}
        tally.add(make("attack-stopped", "error", f"An attack had to stop: {error}"))
        tally.add(left_out([name for name in names if name not in made], "since an attack had to stop"))
        return broken
    if len(names) < len(contests.TESTS):
        tally.add(left_out(contests.NOT_IN_L1, "since these attacks have no l1 form here"))
    return broken.masked_scatter(correct, contest.broken)


def _check(x: Tensor, y: Tensor) -> None:
    if x.ndim < 2 or not x.is_floating_point() or len(x) == 0:
        raise DataError(f"x is a {x.dtype} tensor of shape {tuple(x.shape)}, but it is a batch of float images.")
    if y.shape != (len(x),) or y.is_floating_point():
        raise DataError(f"y is a {y.dtype} tensor of shape {tuple(y.shape)}, but it is {len(x)} integer labels.")
