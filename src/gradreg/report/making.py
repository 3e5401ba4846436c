"""How the figures came about, and what the words in the report mean."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Confirmed, Evaluation
from gradreg.report.numbers import THREAT_SIGNS, significant

# What an evaluation calls the source of a model that was handed over in Python.
IN_PYTHON = "Python"

# In the order in which a reader meets them.
WORDS: tuple[tuple[str, str], ...] = (
    (
        "Threat",
        "The norm that measures how far an attacker moves an image. l∞ is the largest change of any pixel value, "
        "l2 the root of the summed squares, l1 the sum. Pixels lie between 0 and 1, so 8/255 is eight grey levels"
        " of 255.",
    ),
    (
        "Distance",
        "Of an image: the smallest perturbation found that changes the answer, in the threat's norm. It is 0 for "
        "an image that is misclassified as it is, and there is none for an image that withstood every attack "
        "(unbroken).",
    ),
    ("Clean error", "The share of unperturbed images that are misclassified."),
    (
        "Robust error",
        "Within a radius: the share of images that are misclassified, or for which the attacks found an "
        "adversarial image at most that far away. It is what these attacks achieved; a stronger attack can only "
        "raise it.",
    ),
    (
        "AutoAttack",
        "The reference attack of Croce & Hein 2020, at one radius. Where it was run too, the worst case counts an "
        "image as broken if it or our attacks broke it.",
    ),
    (
        "Interval",
        "The 95 % Clopper-Pearson interval of a share. It speaks of the choice of test images and of nothing "
        "else: not of other training runs, and not of stronger attacks.",
    ),
    (
        "Margin",
        "The largest of the other classes less the true one: negative is correct. The bounds take it on softmax "
        "probabilities, the attacks on logits.",
    ),
    (
        "Heuristic",
        "Rests on an estimate that can be too low. The L-bound and the ω-bound are heuristic: L and ω are "
        "estimated from samples, so an attack may break an image inside its bound. How often that happened is "
        "counted.",
    ),
    (
        "Probabilistic",
        "Holds except with a small probability that is stated. Certificates by randomized smoothing are; they are"
        " about the classifier under Gaussian noise, not about the network by itself. Only these are called "
        "certified here.",
    ),
    ("Sound", "Proved for the network as it is, without exception. Nothing in this report is unless it says so."),
    (
        "Gradient masking",
        "A model whose gradients mislead attacks looks more robust than it is. The diagnosis looks for signs of "
        "that. Finding none is not a proof that there is none.",
    ),
    ("Cost", "Training hours over those of the undefended model of the same architecture and number of epochs."),
)


@dataclass(frozen=True)
class Making:
    """One evaluation's settings, in words; `commands` make it again, `recipe` is the training's in full."""

    model: str
    facts: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    recipe: str
    notes: tuple[str, ...]


def shared(makings: Sequence[Making]) -> tuple[tuple[str, str], ...]:
    """The facts that are the same for all models; a model by itself shares nothing."""
    if len(makings) == 1:
        return ()
    return tuple(fact for fact in makings[0].facts if all(fact in other.facts for other in makings))


def of(evaluation: Evaluation) -> Making:
    """What a reader needs to make the evaluation again."""
    return Making(
        evaluation.subject.name,
        tuple((name, text) for name, text in (*_model(evaluation), *_examination(evaluation)) if text),
        _commands(evaluation),
        _recipe(evaluation),
        evaluation.notes,
    )


def _model(evaluation: Evaluation) -> list[tuple[str, str]]:
    subject = evaluation.subject
    training = [
        f"objective {subject.objective}" if subject.objective else "",
        f"{subject.epochs} epochs" if subject.epochs is not None else "",
        f"{significant(subject.hours)} hours" if subject.hours is not None else "",
    ]
    return [
        ("Source", subject.source),
        ("Network", f"{subject.architecture}, {subject.parameters:,} parameters"),
        ("Training", ", ".join(filter(None, training))),
    ]


def _examination(evaluation: Evaluation) -> list[tuple[str, str]]:
    data, settings, origin = evaluation.data, evaluation.settings, evaluation.origin
    attacks = [
        f"{THREAT_SIGNS[threat]} in {significant(examined.attacked.seconds)} s"
        for threat, examined in evaluation.threats.items()
    ]
    confirmed = [
        f"{each.version} at {THREAT_SIGNS[threat]} {radius_name(each.eps)} in {significant(each.seconds)} s"
        for threat, each in _confirmed(evaluation)
    ]
    smoothing = [f"σ = {s.sigma:g}, α = {s.alpha:g}, up to {s.n:,} samples" for s in evaluation.smoothing]
    changed = ", with changes since" if origin.commit.endswith("+") else ""
    return [
        ("Images", f"{len(evaluation):,} of {data.images:,} test images of {data.name}, {_shape(data.shape)}"),
        ("Seed", str(settings.seed)),
        ("Attacks", f"{settings.attacks}: {', '.join(attacks)}" if attacks else ""),
        ("AutoAttack", "; ".join(confirmed)),
        ("Counts as error", f"not among the {settings.topk} first" if settings.topk > 1 else ""),
        ("Bounds", _bounds(evaluation)),
        ("Smoothing", "; ".join(smoothing)),
        ("Software", f"gradreg {origin.gradreg}, torch {origin.torch}"),
        ("Commit", origin.commit.rstrip("+") + changed if origin.commit else "not a checkout"),
        ("Machine", origin.machine),
        ("Made", origin.created),
    ]


def _bounds(evaluation: Evaluation) -> str:
    parts = []
    for threat, examined in evaluation.threats.items():
        bounded, sign = examined.bounded, THREAT_SIGNS[threat]
        if bounded is None:
            parts.append(f"{sign} refused: {examined.refusal.rstrip('.')}")
        else:
            remarks = f" ({', '.join(bounded.flags)})" if bounded.flags else ""
            parts.append(
                f"{sign} by {bounded.method} on {bounded.calibration_images} other images, "
                f"L = {significant(bounded.lipschitz)}{remarks}"
            )
    return "; ".join(parts)


def _commands(evaluation: Evaluation) -> tuple[str, ...]:
    """None for a model that was handed over in Python: there is no command that could name it."""
    if evaluation.subject.source == IN_PYTHON:
        return ()
    return (*([shlex.join(_train(evaluation))] if evaluation.subject.recipe else []), shlex.join(_evaluate(evaluation)))


def _train(evaluation: Evaluation) -> list[str]:
    source = PurePath(evaluation.subject.source)
    folder = source.parent if source.suffix == ".safetensors" else source
    return ["gradreg", "train", "recipe.toml", "--run", str(folder)]


def _evaluate(evaluation: Evaluation) -> list[str]:
    subject, settings, smoothing = evaluation.subject, evaluation.settings, evaluation.smoothing
    command = ["gradreg", "evaluate", subject.source, "--data", evaluation.data.name]
    if subject.recipe is None and subject.source.endswith(".safetensors"):
        command += ["--architecture", subject.architecture]
    command += ["--threat", ",".join(evaluation.threats), "--images", str(len(evaluation))]
    command += ["--attacks", settings.attacks, "--regularity", settings.regularity]
    if confirmed := _confirmed(evaluation):
        command += ["--autoattack", ",".join(f"{threat}={_exact(each.eps)}" for threat, each in confirmed)]
        if confirmed[0][1].version != "standard":
            command += ["--autoattack-version", confirmed[0][1].version]
    if smoothing:
        command += ["--smoothing", ",".join(f"{each.sigma:g}" for each in smoothing), "--samples", str(smoothing[0].n)]
    return [*command, "--seed", str(settings.seed)]


def _confirmed(evaluation: Evaluation) -> list[tuple[str, Confirmed]]:
    return [(threat, each) for threat, examined in evaluation.threats.items() for each in examined.confirmed]


def _exact(radius: float) -> str:
    """A radius as the command line reads it: 8/255 for what is just that, else every digit."""
    steps = round(radius * 255)
    return f"{steps}/255" if radius == steps / 255 and radius < 1 else repr(radius)


def _recipe(evaluation: Evaluation) -> str:
    from gradreg.config.toml import dumps

    return dumps(evaluation.subject.recipe) if evaluation.subject.recipe else ""


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(side) for side in shape)
