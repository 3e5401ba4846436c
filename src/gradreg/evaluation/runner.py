"""All stages of an evaluation, one after the other, and the record of what they found."""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from rich.console import Console

from gradreg.attacks.suite import ATTACKS, left_out
from gradreg.checks.calls import validated
from gradreg.classifier import Classifier
from gradreg.config.options import options_of, plain, takes
from gradreg.errors import ConfigError, DataError, ModelError, warn
from gradreg.evaluation import stages
from gradreg.evaluation.files import FACTS, GALLERY, STATE, TABLE, save
from gradreg.evaluation.fresh import FreshDraws
from gradreg.evaluation.inputs import Data, inputs_of
from gradreg.evaluation.options import EvaluationOptions
from gradreg.evaluation.record import Evaluation, Origin, Settings, ThreatRecord
from gradreg.evaluation.redrawn import Redrawn
from gradreg.evaluation.reporting import ConsoleReporter
from gradreg.evaluation.work import Work
from gradreg.extras import need
from gradreg.ledger import Ledger
from gradreg.norms import Threat
from gradreg.penalty.passes import Model
from gradreg.processes import joined
from gradreg.runs.directory import CONFIG
from gradreg.runs.subject import Subject, check_fits, describe, device_of
from gradreg.stopwatch import noticing_stops
from gradreg.writing import check_links, sweep

T = TypeVar("T")


@takes(EvaluationOptions)
@validated
def evaluate(
    model: Model,
    data: Data,
    options: EvaluationOptions | None = None,
    *,
    calibration: Data | None = None,
    name: str | None = None,
    subject: Subject | None = None,
    folder: str | Path | None = None,
    console: Console | None = None,
    **keywords: Any,
) -> Evaluation:
    """How robust a model is, on random images of a test set: attacks, bounds, diagnosis, certificates.

    `data` is a data set of `gradreg.data`, a part of one, (images, labels), or a loader of such pairs. Bounds by
    "ascent" or "paper" need training images, which only a whole data set has: otherwise pass `calibration`. Options are
    an `EvaluationOptions`, or its fields as keywords: `evaluate(model, data, threat="linf", images=500)`. The model is
    left where and as it is.

    With `folder`, finished stages are kept there and the same call continues them; at the end it holds the files that
    `gradreg.evaluation.load` reads. Under torchrun, processes share the images, and each returns the evaluation.
    """
    chosen = options_of(EvaluationOptions, options, keywords)
    need("scipy", "An evaluation")
    classifier = Classifier.of(model)
    if classifier.box != (0.0, 1.0):
        low, high = classifier.box
        raise ConfigError(
            f"An evaluation is about pixels from 0 to 1, and so are its radii; got a classifier of pixels from {low:g} "
            f"to {high:g}: let the model multiply inside."
        )
    subject = subject or describe(classifier, name)
    inputs = inputs_of(data, calibration, chosen)
    inputs = inputs.to(device_of(classifier, inputs.x)).quoted_in(chosen.norms)
    with (
        noticing_stops(),
        joined(str(inputs.x.device)) as processes,
        TemporaryDirectory() if folder is None else nullcontext(str(folder)) as place,
    ):
        test_set = inputs.test_set
        classes = check_fits(classifier, inputs.x, test_set.name, len(test_set.classes) or None)
        origin, state = Origin.now(processes.device), Path(place) / STATE
        if (Path(place) / FACTS).exists() and not state.exists():
            raise ConfigError(f"{place} holds a finished evaluation; choose another folder (--out), or delete it.")
        if Path(place).is_dir():
            check_links(Path(place))
        # Of a run, or of somebody else: the evaluation would be mixed into it, or written over it.
        theirs = [name for name in (TABLE, GALLERY, CONFIG) if os.path.lexists(Path(place) / name)]
        if theirs and not state.exists():
            raise ConfigError(f"{place} must hold no {theirs[0]} of something else; choose another folder (--out).")
        about = {
            "weights": classifier.fingerprint(inputs.x),
            "images": inputs.key(),
            "calibration images": inputs.calibration.key if inputs.calibration else "",
            "settings": chosen.key(),
        }
        reporter = ConsoleReporter(console if processes.first else None, chosen.topk)
        with Ledger(state, about, noted={"origin": vars(origin)}, writes=processes.first) as ledger:
            if processes.first:
                sweep(Path(place))
            processes.wait()
            work = Work(classifier, inputs, chosen, processes, ledger, reporter)
            stages.clean.check(work, classes)
            stages.confirmation.check(work, classes)
            found = _evaluation(work, subject, origin, test_set.classes or tuple(map(str, range(classes))))
            if folder is not None and processes.first:
                save(found, folder)
            processes.wait()
        return found


def _evaluation(work: Work, subject: Subject, now: Origin, classes: tuple[str, ...]) -> Evaluation:
    options, inputs = work.options, work.inputs
    clean = _explained(work, lambda: stages.clean.clean(work), options.norms[0])
    fresh = stages.fresh.fresh(work)
    noted: list[str] = []
    threats: dict[str, ThreatRecord] = {norm.name: _threat(work, norm, fresh, noted) for norm in options.norms}
    begun = _begun(work)
    changed = f"It was begun at commit {begun.commit!r} and finished at {now.commit!r}."
    found = Evaluation(
        subject=subject,
        data=replace(inputs.test_set, classes=classes),
        settings=Settings(options.seed, options.attacks_name, options.regularity, options.topk, plain(options)),
        origin=begun,
        index=inputs.index,
        label=inputs.y.cpu(),
        prediction=clean.prediction,
        margin=clean.margin,
        threats=threats,
        clean=None if clean.errors is None else (clean.errors, clean.images),
        notes=(
            *(() if begun.commit == now.commit else (changed,)),
            *_left_out(options),
            *noted,
            *_redrawn(threats, fresh),
        ),
        fresh=fresh,
    )
    for sigma in options.sigmas:
        smoothed = stages.smoothing.smoothing(work, sigma)
        found = replace(found, smoothing=(*found.smoothing, smoothed))
        work.reporter.smoothed(smoothed, float(found.certified(smoothed, smoothed.radii[0]).double().mean()))
    return found


def _begun(work: Work) -> Origin:
    try:
        return Origin(**work.ledger.noted["origin"])
    except (KeyError, TypeError) as error:
        raise DataError(f"{work.ledger.folder} is damaged: it does not say where it was begun; delete it.") from error


def _left_out(options: EvaluationOptions) -> Iterator[str]:
    """What a suite could not run in a norm, a sentence each."""
    for norm in options.norms:
        for attack in left_out(options.attacks_chosen, norm, fixed=False):
            reason = ATTACKS[attack].because
            yield f"In {norm.symbol}, the {options.attacks_name} suite ran without {attack}, since {reason}."


def _redrawn(threats: dict[str, ThreatRecord], fresh: FreshDraws | None) -> Iterator[str]:
    """What fresh draws make of the adversarial images of a randomised model, a sentence for each norm."""
    for record in threats.values():
        if (found := Redrawn.of(fresh, record)) is not None:
            yield stages.fresh.sentence(record.symbol, found)


def _threat(work: Work, norm: Threat, fresh: FreshDraws | None, notes: list[str]) -> ThreatRecord:
    options, reporter, name = work.options, work.reporter, norm.name
    own = stages.norm.described(work, norm)
    attacks = _explained(work, lambda: stages.attacks.attacks(work, norm), norm)
    if note := stages.attacks.without_gradients(attacks, norm):
        warn(note)
        notes.append(note)
    record = ThreatRecord(name, attacks.attacked, None, "", (), stages.attacks.gallery(work, attacks), norm=own)
    record = replace(record, fresh=attacks.fresh)
    reporter.attacked(record, work.inputs.test_set.usual_radius(name))
    if (redrawn := Redrawn.of(fresh, record)) is not None:
        reporter.redrawn(redrawn, work.inputs.test_set.usual_radius(name))
    bounds = stages.bounds.bounding(work, norm)
    bounded = stages.bounds.calibrated(work, bounds, record.attacked.distance)
    record = replace(record, bounded=bounded, refusal=bounds.refusal)
    reporter.bounded(name, bounded, bounds.refusal)
    if options.diagnosis:
        record = replace(record, flags=stages.diagnosis.diagnosis(work, norm, attacks, bounded))
        reporter.diagnosed(name, record.flags)
    for eps in options.confirmations.get(name, ()):
        confirmed = stages.confirmation.confirmation(work, name, eps)
        record = replace(record, confirmed=(*record.confirmed, confirmed))
        reporter.confirmed(record, confirmed, options.attacks_name)
    return record


def _explained(work: Work, stage: Callable[[], T], threat: Threat) -> T:
    """A stage's result. Where the model cannot be attacked at all, the diagnosis says why before the error does."""
    try:
        return stage()
    except ModelError:
        if work.options.diagnosis:
            work.reporter.diagnosed(threat.name, stages.diagnosis.explain(work, threat))
        raise
