"""All examinations of a model, one after the other, and the record of what they found."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from rich.console import Console

from gradreg.attacks.suite import SuiteName
from gradreg.bounds.estimate import Method
from gradreg.classifier import Classifier
from gradreg.errors import ModelError
from gradreg.evaluation import attacking, bounding, certifying, confirming
from gradreg.evaluation.files import save
from gradreg.evaluation.material import Data, Material, gathered
from gradreg.evaluation.options import RADII, Options, radii_from, threats_from
from gradreg.evaluation.origin import origin
from gradreg.evaluation.record import Evaluation, Examined, Settings, TestSet
from gradreg.evaluation.state import State
from gradreg.evaluation.telling import Teller
from gradreg.evaluation.work import Work
from gradreg.norms import ThreatName
from gradreg.penalty.passes import Model
from gradreg.processes import Processes, joined
from gradreg.runs.subject import Subject, check_fits, describe, device_of

CALIBRATION_IMAGES = 640
T = TypeVar("T")


def evaluate(
    model: Model,
    data: Data,
    *,
    threat: ThreatName | Sequence[ThreatName] = ("l2", "linf"),
    images: int = 1000,
    attacks: SuiteName | Sequence[str] = "standard",
    regularity: Method = "ascent",
    calibration: Data | None = None,
    calibration_images: int = CALIBRATION_IMAGES,
    smoothing: Sequence[float] | None = None,
    alpha: float = 0.001,
    samples: int = 100_000,
    radii: Sequence[float] = RADII,
    diagnosis: bool = True,
    autoattack: Mapping[ThreatName, Sequence[float]] | None = None,
    autoattack_version: str = "standard",
    seed: int = 0,
    batch_size: int = 100,
    name: str | None = None,
    subject: Subject | None = None,
    folder: str | Path | None = None,
    console: Console | None = None,
) -> Evaluation:
    """How robust a model is, on `images` random images of a test set: attacks, bounds, diagnosis, certificates.

    `data` is a data set of `gradreg.data`, a part of one, (images, labels), or a loader of such pairs. The bounds need
    training images, which only a whole data set has: else pass `calibration`. `smoothing` are the σ to certify with,
    `autoattack` the radii of each threat at which the reference AutoAttack is asked too, as {"linf": [8 / 255]}. The
    model is left where and as it is.

    With `folder`, what is finished is kept there and the same call continues it; at the end it holds the files that
    `gradreg.evaluation.load` reads. Under torchrun, processes share the images, and each returns the evaluation.
    """
    options = Options(
        threats=threats_from(threat),
        attacks=attacks if isinstance(attacks, str) else tuple(attacks),
        regularity=regularity,
        smoothing=tuple(float(sigma) for sigma in smoothing or ()),
        alpha=float(alpha),
        samples=int(samples),
        radii=tuple(float(radius) for radius in radii),
        seed=seed,
        batch_size=batch_size,
        diagnosis=diagnosis,
        autoattack=radii_from(autoattack),
        autoattack_version=autoattack_version,
    )
    classifier = Classifier.of(model)
    subject = subject or describe(classifier, name)
    material = gathered(data, images, seed, calibration, calibration_images)
    device = device_of(classifier, material.x)
    material = replace(material, x=material.x.to(device), y=material.y.to(device).long())
    with joined(str(device)) as processes:
        place = TemporaryDirectory() if folder is None else nullcontext(str(folder))
        with place as kept:
            return _evaluate(classifier, material, options, subject, processes, Path(kept), folder is not None, console)


def _evaluate(
    classifier: Classifier,
    material: Material,
    options: Options,
    subject: Subject,
    processes: Processes,
    folder: Path,
    keep: bool,
    console: Console | None,
) -> Evaluation:
    classes = check_fits(classifier, material.x, material.name, len(material.classes) if material.classes else None)
    about = {
        "weights": classifier.fingerprint(material.x[: options.batch_size]),
        "images": material.key(),
        "calibration images": material.calibration.key if material.calibration else "",
        "settings": options.key(),
    }
    state = State(folder, about, origin(processes.device), processes.first)
    processes.wait()
    work = Work(classifier, material, options, processes, state, Teller(console if processes.first else None))
    confirming.check(work, classes)
    found = _examined(work, subject, material.classes or tuple(str(label) for label in range(classes)))
    if keep and processes.first:
        save(found, folder)
    processes.wait()
    return found


def _examined(work: Work, subject: Subject, classes: tuple[str, ...]) -> Evaluation:
    options, material = work.options, work.material
    clean = _explained(work, lambda: attacking.clean(work))
    threats: dict[str, Examined] = {name: _threat(work, name) for name in options.threats}
    y = material.y.cpu()
    smoothing = []
    for sigma in options.smoothing:
        smoothing.append(certifying.smoothing(work, sigma))
        certified = (smoothing[-1].prediction == y) & (smoothing[-1].radius >= smoothing[-1].radii[0])
        work.teller.smoothed(smoothing[-1], float(certified.double().mean()))
    begun, now = work.state.origin, work.state.now.commit
    notes = () if begun.commit == now else (f"It was begun at commit {begun.commit!r} and finished at {now!r}.",)
    return Evaluation(
        subject=subject,
        data=replace(_test_set(work), classes=classes),
        settings=Settings(options.seed, options.attacks_name, options.regularity),
        origin=begun,
        index=material.index,
        label=y,
        prediction=clean.prediction,
        margin=clean.margin,
        threats=threats,
        smoothing=tuple(smoothing),
        clean=None if clean.errors is None else (clean.errors, clean.images),
        notes=notes,
    )


def _test_set(work: Work) -> TestSet:
    material = work.material
    return TestSet(material.name, material.total, (), tuple(material.x.shape[1:]), material.radii)


def _threat(work: Work, name: ThreatName) -> Examined:
    attacks = _explained(work, lambda: attacking.attacks(work, name), name)
    work.teller.attacked(Examined(name, attacks.attacked, None, "", ()), _test_set(work).usual_radius(name))
    bounds = bounding.bounding(work, name)
    work.teller.bounded(name, bounds.bounded, bounds.refusal)
    flags = bounding.diagnosis(work, name, attacks, bounds).flags if work.options.diagnosis else ()
    if work.options.diagnosis:
        work.teller.diagnosed(name, flags)
    gallery = attacking.gallery(work, attacks)
    examined = Examined(name, attacks.attacked, bounds.bounded, bounds.refusal, flags, gallery)
    for eps in work.options.autoattack.get(name, ()):
        confirmed = confirming.confirmation(work, name, eps)
        examined = replace(examined, confirmed=(*examined.confirmed, confirmed))
        work.teller.confirmed(examined, confirmed, work.options.attacks_name)
    return examined


def _explained(work: Work, stage: Callable[[], T], threat: ThreatName | None = None) -> T:
    """The stage's result. Where the model cannot be attacked at all, the diagnosis tells why before the error does."""
    try:
        return stage()
    except ModelError:
        if work.options.diagnosis:
            from gradreg.diagnosis import diagnose

            name = threat or work.options.threats[0]
            x, y = work.material.x[: attacking.KEPT], work.material.y[: attacking.KEPT]
            seed, size = work.options.seed, work.options.batch_size
            work.teller.diagnosed(name, diagnose(work.classifier, x, y, threat=name, seed=seed, batch_size=size))
        raise
