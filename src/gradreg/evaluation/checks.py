"""What must hold of an evaluation before it is written and after it is read: lengths, types and ranges."""

from collections.abc import Mapping
from typing import Any

import torch

from gradreg.checks.scalars import shown
from gradreg.columns import (
    check_bools,
    check_floats,
    check_length,
    check_number,
    check_pixels,
    check_rising,
    check_whole,
)
from gradreg.errors import DataError
from gradreg.evaluation.fresh import FreshDraws
from gradreg.evaluation.gallery import Gallery
from gradreg.evaluation.record import Attacked, Bounded, Confirmed, Evaluation, Smoothed, TestSet, ThreatRecord
from gradreg.runs.subject import Subject


def check(evaluation: Evaluation) -> None:
    """Refuse an evaluation whose columns do not belong together or hold what no evaluation can find."""
    n, data = evaluation.index.numel(), evaluation.data
    _check_data(data)
    _check_subject(evaluation.subject)
    check_number("settings.topk", evaluation.settings.topk, 1)
    for name, value in evaluation.settings.options.items():
        _check_option(f"settings.options.{name}", value)
    top = len(data.classes) - 1
    check_whole("index", evaluation.index, n, 0, data.images - 1)
    if len(data.pixels) not in (0, n):
        raise DataError(f"data.pixels must have a fingerprint for each of {n} images; got {len(data.pixels)}.")
    if len(evaluation.index.unique()) < n:
        raise DataError("index must name each image once; got one twice.")
    check_whole("label", evaluation.label, n, 0, top)
    check_whole("prediction", evaluation.prediction, n, 0, top)
    check_floats("margin", evaluation.margin, n, -1.0, 1.0)
    for name, found in evaluation.threats.items():
        if found.threat != name:
            raise DataError(f"threats.{name} must be about {name}; got {found.threat}.")
        _check_threat(f"threats.{name}", found, n, data)
    if evaluation.fresh is not None:
        _check_fresh("fresh", evaluation.fresh, n)
    for row, smoothed in enumerate(evaluation.smoothing):
        _check_smoothed(f"smoothing.{row}", smoothed, n, top)
    if evaluation.clean is not None:
        errors, images = evaluation.clean
        check_number("the images of clean", images, 1)
        check_number("the errors of clean", errors, 0, images)


def _check_data(data: TestSet) -> None:
    check_number("data.images", data.images, 1)
    for side in data.shape:
        check_number("a side of data.shape", side, 1)
    for threat, radii in data.radii.items():
        check_rising(f"data.radii.{threat}", radii)
        check_number(f"the number of data.radii.{threat}", len(radii), 2)


def _check_subject(subject: Subject) -> None:
    check_number("subject.parameters", subject.parameters, 0)
    check_number("subject.epochs", subject.epochs or 0, 0)
    check_number("subject.hours", subject.hours or 0.0, 0.0)
    seed = (subject.recipe or {}).get("seed", 0)
    if not isinstance(seed, int):
        raise DataError(f"subject.recipe.seed must be a whole number; got {shown(seed)}.")


def _check_option(at: str, value: Any) -> None:
    """A value, a list of them, or lists by name, as of radii by threat."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(part, list | tuple):
                raise DataError(f"{at}.{name} must be a list; got {shown(part)}.")
            _check_option(f"{at}.{name}", part)
    elif isinstance(value, list | tuple):
        for part in value:
            if isinstance(part, Mapping | list | tuple):
                raise DataError(f"{at} must be a list of numbers or texts; got {shown(part)} in it.")


def _check_threat(at: str, found: ThreatRecord, n: int, data: TestSet) -> None:
    _check_attacked(f"{at}.attacked", found.attacked, n)
    if found.bounded is not None:
        _check_bounded(f"{at}.bounded", found.bounded, n)
    for row, confirmed in enumerate(found.confirmed):
        _check_confirmed(f"{at}.confirmed.{row}", confirmed, n)
    if found.gallery is not None:
        _check_gallery(f"{at}.gallery", found.gallery, n, data)
    if found.fresh is not None:
        _check_fresh(f"{at}.fresh", found.fresh, n)


def _check_attacked(at: str, found: Attacked, n: int) -> None:
    check_floats(f"{at}.distance", found.distance, n, 0.0, infinite=True)
    check_length(f"{at}.winner", found.winner, n)
    check_whole(f"{at}.forwards", found.forwards, n)
    check_whole(f"{at}.backwards", found.backwards, n)
    check_number(f"{at}.seconds", found.seconds, 0.0)


def _check_bounded(at: str, found: Bounded, n: int) -> None:
    check_floats(f"{at}.gradient_norm", found.gradient_norm, n, 0.0)
    check_floats(f"{at}.lipschitz_bound", found.lipschitz_bound, n, 0.0, infinite=True)
    check_floats(f"{at}.omega_bound", found.omega_bound, n, 0.0, infinite=True)
    check_number(f"{at}.lipschitz", found.lipschitz, 0.0, infinite=True)
    check_rising(f"{at}.eps", found.eps)
    if len(found.omega) != len(found.eps):
        raise DataError(f"{at}.omega must have a value for each of {len(found.eps)} radii; got {len(found.omega)}.")
    for omega in found.omega:
        check_number(f"{at}.omega", omega, 0.0, infinite=True)
    check_number(f"{at}.calibration_images", found.calibration_images, 0)
    check_number(f"{at}.seconds", found.seconds, 0.0)


def _check_confirmed(at: str, found: Confirmed, n: int) -> None:
    check_bools(f"{at}.robust", found.robust, n)
    for name in ("eps", "forwards", "backwards", "seconds"):
        check_number(f"{at}.{name}", getattr(found, name), 0.0)


def _check_fresh(at: str, found: FreshDraws, n: int) -> None:
    check_number(f"{at}.draws", found.draws, 1)
    check_bools(f"{at}.wrong", found.wrong, n)
    check_floats(f"{at}.share", found.share, n, 0.0, 1.0)


def _check_gallery(at: str, found: Gallery, n: int, data: TestSet) -> None:
    shown = len(found.rows)
    check_whole(f"{at}.rows", torch.tensor(found.rows, dtype=torch.int64, device="cpu"), shown, 0, n - 1)
    answers = torch.tensor(found.prediction, dtype=torch.int64, device="cpu")
    check_whole(f"{at}.prediction", answers, shown, 0, len(data.classes) - 1)
    check_pixels(f"{at}.clean", found.clean, shown, data.shape)
    check_pixels(f"{at}.adversarial", found.adversarial, shown, data.shape)
    if found.segment is not None:
        places = found.segment.at
        check_number(f"the number of {at}.segment.at", len(places), 2)
        check_number(f"{at}.segment.at", places[0], 0.0)
        check_rising(f"{at}.segment.at", places[1:], places[0])
        expected, shape = (shown, len(places)), tuple(found.segment.margin.shape)
        if shape != expected:
            raise DataError(f"{at}.segment.margin must have shape {expected}; got {shape}.")
        check_floats(f"{at}.segment.margin", found.segment.margin.flatten(), shown * len(places), -1.0, 1.0)


def _check_smoothed(at: str, found: Smoothed, n: int, top: int) -> None:
    check_whole(f"{at}.prediction", found.prediction, n, -1, top)
    check_floats(f"{at}.radius", found.radius, n, 0.0)
    check_whole(f"{at}.samples", found.samples, n)
    check_number(f"{at}.sigma", found.sigma, 0.0)
    check_number(f"{at}.alpha", found.alpha, 0.0, 1.0)
    check_number(f"{at}.n", found.n, 1)
    check_number(f"{at}.seconds", found.seconds, 0.0)
    if found.radii:
        check_number(f"{at}.radii", found.radii[0], 0.0)
        check_rising(f"{at}.radii", found.radii[1:], found.radii[0])
