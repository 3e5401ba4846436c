"""Is this robustness real? All tests of the registry, one after the other, as far as each still makes sense."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from gradreg.attacks import AttackResult
from gradreg.attacks.suite import ATTACKS
from gradreg.bounds import Bound
from gradreg.calling.asking import check_weights
from gradreg.calling.streams import RandomState
from gradreg.checks.calls import validated
from gradreg.checks.scalars import shown
from gradreg.checks.tensors import check_batch, check_classes, check_device, check_labels
from gradreg.classifier import Classifier
from gradreg.config.options import options_of, takes
from gradreg.diagnosis import usage
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.claims import Claims, Comparison, smoothed_certificates
from gradreg.diagnosis.contests import Contest
from gradreg.diagnosis.flags import Flag, left_out, make
from gradreg.diagnosis.options import DiagnosisOptions
from gradreg.diagnosis.registry import Test, at_stage
from gradreg.errors import ConfigError, ModelError, silenced
from gradreg.norms import checked
from gradreg.penalty.passes import Model
from gradreg.precision import at_least_single
from gradreg.progress import Progress
from gradreg.smoothing import Certificates

_MADE = at_stage("usage", "point", "nearby", "contest")
# One more than the tests, since a diagnosis ends with what was left out, or with claims.
_TOTAL = len(_MADE) + 1


@takes(DiagnosisOptions)
@validated
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
    """One flag per test, "info" where it was passed, on the first `images` images.

    What an attack refuses (train mode, probabilities, pixels outside the box, …) becomes a flag here. What an attack
    found (`attack_result`), what was proved (`sound`) or estimated (`bound`) about all the images is compared with
    adversarial images.
    """
    chosen = options_of(DiagnosisOptions, options, keywords)
    norm, topk, classifier = chosen.norm, chosen.topk, Classifier.of(model)
    x, y = check_batch(x).detach(), check_labels(y, len(x))
    x = x.to(at_least_single(x.dtype))
    check_device("y", y, x)
    checked(norm, x)
    check_weights(classifier.model)  # a forward would give a lazy layer random ones
    claims = Claims(attack_result, sound, bound)
    claims.check(len(x), norm.name, topk)
    if certificates is not None and not isinstance(certificates, Certificates):
        raise ConfigError(f"certificates must be what certify returns; got {shown(certificates)}.")
    tally = _Tally(progress)
    # A randomised model draws from the global stream, which is put back afterwards.
    with silenced(), RandomState.now(x.device).replayed(), usage.eval_mode(classifier) as in_train_mode:
        build = partial(
            _case,
            threat=norm,
            eps=chosen.radius_on(x),
            topk=topk,
            seed=chosen.seed,
            batch_size=chosen.batch_size,
            in_train_mode=in_train_mode,
        )
        first = build(classifier, x[: chosen.images], y[: chosen.images])
        check_classes(y, first.logits.shape[1])
        _run(first, partial(build, x=x, y=y), claims, tally)
    if certificates is not None:
        tally.add(smoothed_certificates(certificates))
    return tally.finish()


@dataclass
class _Tally:
    """The flags so far, and the progress that they stand for."""

    progress: Progress | None
    flags: list[Flag] = field(default_factory=list)

    def make(self, tests: Iterable[Test], given: Case | Contest | Comparison) -> None:
        """Run tests, one after the other, until one finds that logits are not finite."""
        for test in tests:
            module, _, function = test.run.partition(".")
            self.add(getattr(import_module(f"gradreg.diagnosis.{module}"), function)(given))
            if self.failed("not-finite"):
                return

    def add(self, flag: Flag) -> None:
        self.flags.append(flag)
        if self.progress is not None:
            self.progress(min(len(self.flags), _TOTAL - 1), _TOTAL)

    def leave_out(self, tests: Iterable[Test], reason: str, claims: Sequence[str] = ()) -> None:
        """Say which of these tests were not made, and why."""
        made = {flag.code for flag in self.flags}
        names = [*(test.code for test in tests if test.code not in made), *claims]
        if names:
            self.add(left_out(names, reason))

    def stop(self, error: ModelError, tests: Iterable[Test]) -> None:
        """Say, once, that an attack had to stop, and which tests therefore were not made."""
        if not self.failed("attack-stopped"):
            self.add(make("attack-stopped", "error", f"An attack had to stop: {error}"))
        self.leave_out(tests, "since an attack had to stop")

    def failed(self, code: str) -> bool:
        return any(flag.code == code and flag.severity == "error" for flag in self.flags)

    def finish(self) -> list[Flag]:
        if self.progress is not None:
            self.progress(_TOTAL, _TOTAL)
        return self.flags


def _case(classifier: Classifier, x: Tensor, y: Tensor, *, batch_size: int, **settings: Any) -> Case:
    """The images with the logits of the classifier."""
    logits = usage.clean_logits(classifier, x, batch_size)
    return Case(classifier, x, y, logits, batch_size=batch_size, **settings)


def _run(case: Case, on_all: Callable[[Classifier], Case], claims: Claims, tally: _Tally) -> None:
    """All tests, as far as each still makes sense; `on_all` makes a case of all the images, which claims are about."""
    tally.make(at_stage("usage"), case)
    if tally.failed("not-finite"):
        tally.leave_out(_MADE, "since logits are not finite", claims.names)
        return
    if tally.failed("batch-dependent") and not tally.failed("randomised"):
        reason = "since the model's answer about an image depends on the rest of the batch"
        tally.leave_out(_MADE, reason, claims.names)
        return
    face = usage.attackable(case.classifier, case.x, log=tally.failed("probabilities"))
    case = replace(case, classifier=face, logits=usage.clean_logits(face, case.x, case.batch_size))
    trouble = "since the model gives another answer each time" if tally.failed("randomised") else ""
    trouble = "since distances in such pixels mean nothing" if tally.failed("input-range") else trouble
    broken = _attack(case, trouble, tally)
    if trouble:
        tally.leave_out((), trouble, claims.names)
    elif claims.names:
        chosen = [test for test in at_stage("claim") if set(test.needs) <= set(claims.names)]
        try:
            found = Comparison.of(on_all(face), claims, broken)
        except ModelError as error:
            tally.stop(error, chosen)
            return
        tally.make(chosen, found)


def _attack(case: Case, trouble: str, tally: _Tally) -> Tensor:
    """Gradients and attacks on the correctly classified images; returns which of all images were broken within ε."""
    correct = case.correct
    broken = torch.zeros_like(correct)
    if not bool(correct.any()):
        tally.leave_out(_MADE, "since no image is classified correctly")
        return broken
    case = case.select(correct)
    tally.make(at_stage("point"), case)
    if trouble:
        tally.leave_out(_MADE, trouble)
        return broken
    tally.make(at_stage("nearby"), case)
    contest = Contest(case)
    contests = [test for test in at_stage("contest") if all(contest.supports(ATTACKS[name]) for name in test.needs)]
    try:
        tally.make(contests, contest)
    except ModelError as error:
        tally.stop(error, contests)
        return broken
    tally.leave_out(_MADE, f"since these attacks have no {case.threat.name} form here")
    return broken.masked_scatter(correct, contest.broken)
