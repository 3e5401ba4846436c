"""Provenance of an evaluation: model, settings, software and the commands that reproduce it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from gradreg.display.numbers import significant
from gradreg.evaluation.record import Confirmed, Evaluation
from gradreg.report.numbers import ball

# The source of a model that was passed in Python.
_IN_PYTHON = "Python"
# Options that say nothing unless another one is given, and one that changes no result.
_ONLY_WITH = {"alpha": "smoothing", "samples": "smoothing", "radii": "smoothing", "autoattack_version": "autoattack"}
_NO_MATTER = "batch_size"


@dataclass(frozen=True)
class Provenance:
    """One evaluation's settings in words, the commands that reproduce it, and the training's recipe in full."""

    model: str
    facts: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    recipe: str
    notes: tuple[str, ...]


def shared(provenances: Sequence[Provenance]) -> tuple[tuple[str, str], ...]:
    """The facts that are the same for all models; none for a single model."""
    if len(provenances) == 1:
        return ()
    return tuple(fact for fact in provenances[0].facts if all(fact in other.facts for other in provenances))


def of(evaluation: Evaluation) -> Provenance:
    """What a reader needs to reproduce the evaluation."""
    return Provenance(
        evaluation.subject.name,
        tuple((name, text) for name, text in (*_model(evaluation), *_settings(evaluation)) if text),
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


def _settings(evaluation: Evaluation) -> list[tuple[str, str]]:
    data, settings, origin = evaluation.data, evaluation.settings, evaluation.origin
    attacks = [f"{record.symbol} in {significant(record.attacked.seconds)} s" for record in evaluation.threats.values()]
    confirmed = [
        f"{each.version} at {ball(evaluation.threats[threat].symbol, each.eps)} in {significant(each.seconds)} s"
        for threat, each in _confirmed(evaluation)
    ]
    smoothing = [f"σ = {s.sigma:g}, α = {s.alpha:g}, up to {s.n:,} samples" for s in evaluation.smoothing]
    changed = ", with uncommitted changes" if origin.commit.endswith("+") else ""
    return [
        ("Images", f"{len(evaluation):,} of {data.images:,} test images of {data.name}, {_shape(data.shape)}"),
        ("Seed", str(settings.seed)),
        ("Attacks", f"{settings.attacks}: {', '.join(attacks)}" if attacks else ""),
        ("AutoAttack", "; ".join(confirmed)),
        ("Error", f"top-{settings.topk}" if settings.topk > 1 else ""),
        ("Bounds", _bounds(evaluation)),
        ("Smoothing", "; ".join(smoothing)),
        ("Software", f"gradreg {origin.gradreg}, torch {origin.torch}"),
        ("Commit", origin.commit.rstrip("+") + changed if origin.commit else "not a checkout"),
        ("Machine", origin.machine),
        ("Date", origin.created),
    ]


def _bounds(evaluation: Evaluation) -> str:
    parts = []
    for record in evaluation.threats.values():
        bounded, sign = record.bounded, record.symbol
        if bounded is None:
            parts.append(f"{sign} refused: {record.refusal.rstrip('.')}")
        else:
            remarks = f" ({', '.join(bounded.flags)})" if bounded.flags else ""
            parts.append(
                f"{sign} by {bounded.method} on {bounded.calibration_images} calibration images, "
                f"L = {significant(bounded.lipschitz)}{remarks}"
            )
    return "; ".join(parts)


def _commands(evaluation: Evaluation) -> tuple[str, ...]:
    """None for a model, and none that evaluates in a norm, that was made in Python: no command can name them."""
    if evaluation.subject.source == _IN_PYTHON:
        return ()
    named = all(record.norm is None for record in evaluation.threats.values())
    training = [shlex.join(_train(evaluation))] if evaluation.subject.recipe else []
    return (*training, *([shlex.join(_evaluate(evaluation))] if named else []))


def _train(evaluation: Evaluation) -> list[str]:
    source = PurePath(evaluation.subject.source)
    folder = source.parent if source.suffix == ".safetensors" else source
    return ["gradreg", "train", "recipe.toml", "--run", str(folder)]


def _evaluate(evaluation: Evaluation) -> list[str]:
    subject, options = evaluation.subject, evaluation.settings.options
    if not options:
        return _evaluate_by_figures(evaluation)
    return ["gradreg", "evaluate", subject.source, *subject.arguments, *_flags(options)]


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Every option that the figures depend on, defaults included: another version may have others."""
    without = {option for option, needed in _ONLY_WITH.items() if options.get(needed) is None}
    for name, value in options.items():
        if value is None or name in without | {_NO_MATTER}:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield from (f"--{flag}", _argument(value))


def _argument(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_argument(part)}" for name, parts in value.items() for part in parts)
    if isinstance(value, list | tuple):
        return ",".join(map(_argument, value))
    return _exact(value) if isinstance(value, float) else str(value)


def _evaluate_by_figures(evaluation: Evaluation) -> list[str]:
    """For files of before options were recorded: what can be told from the figures."""
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
    return [(threat, each) for threat, record in evaluation.threats.items() for each in record.confirmed]


def _exact(radius: float) -> str:
    """A radius as the command line reads it: 8/255 for what is just that, else every digit."""
    steps = round(radius * 255)
    return f"{steps}/255" if radius == steps / 255 and radius < 1 else repr(radius)


def _recipe(evaluation: Evaluation) -> str:
    from gradreg.config.toml import dumps

    return dumps(evaluation.subject.recipe) if evaluation.subject.recipe else ""


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(side) for side in shape)
