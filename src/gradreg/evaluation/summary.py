"""The figures that a person looks for first, computed from the columns of an evaluation."""

import math
from typing import Any

from torch import Tensor

from gradreg.bounds.validity import Violations
from gradreg.evaluation.record import Confirmed, Evaluation, Smoothed, ThreatRecord
from gradreg.evaluation.redrawn import Redrawn
from gradreg.evaluation.shares import share_of


def summary(evaluation: Evaluation) -> dict[str, Any]:
    """Clean and robust error with 95 % intervals, distances, how the bounds fared, certified accuracy."""
    found: dict[str, Any] = {"images": len(evaluation), "clean_error": shares(evaluation.wrong)}
    if evaluation.clean is not None:
        errors, images = evaluation.clean
        found["clean_error_of_the_whole_test_set"] = errors / images
    found["threats"] = {name: _threat(evaluation, record) for name, record in evaluation.threats.items()}
    found["certified_accuracy"] = {
        f"sigma {smoothed.sigma:g}": _certified(evaluation, smoothed) for smoothed in evaluation.smoothing
    }
    return found


def shares(fails: Tensor) -> dict[str, Any]:
    """A share and its interval, for JSON."""
    return vars(share_of(fails))


def _threat(evaluation: Evaluation, record: ThreatRecord) -> dict[str, Any]:
    radii = evaluation.data.usual_radii(record.threat)
    worst = [flag.severity for flag in record.flags]
    found: dict[str, Any] = {
        "robust_error": {f"{radius:.6g}": vars(record.robust_error(radius)) for radius in radii},
        "mean_distance": _finite(record.mean_distance()),
        "unbroken": int((~record.distance.isfinite()).sum()),
        "warnings": worst.count("warning"),
        "errors": worst.count("error"),
    }
    for name, validity in (("l_bound", record.lipschitz_validity()), ("omega_bound", record.omega_validity())):
        if validity is not None:
            found[name] = _fared(validity)
    calibrated = record.calibrated_validity()
    if calibrated is not None and record.bounded is not None and record.bounded.calibrated is not None:
        facts = record.bounded.calibrated
        found["calibrated_bound"] = {"alpha": facts.alpha, "scale": facts.scale, **_fared(calibrated)}
    if (redrawn := Redrawn.of(evaluation.fresh, record)) is not None:
        found["fresh_draws"] = {
            "draws": redrawn.clean.draws,
            "error": {f"{radius:.6g}": shares(~redrawn.robust(radius)) for radius in (0.0, *radii)},
            "error_of_one_draw": {f"{radius:.6g}": 1 - redrawn.single(radius) for radius in (0.0, *radii)},
            "adversarial": len(redrawn.fooled),
            "misclassified": int(redrawn.fooled.sum()),
        }
    if record.confirmed:
        found["confirmed"] = {
            f"{each.attack} {each.version} at {each.eps:.6g}": _confirmed(record, each) for each in record.confirmed
        }
    return found


def _confirmed(record: ThreatRecord, confirmed: Confirmed) -> dict[str, Any]:
    return {
        "robust_error": {
            "attacks": shares(~record.robust_to_attacks(confirmed.eps)),
            confirmed.attack: shares(~confirmed.robust),
            "worst_case": shares(~record.robust(confirmed.eps)),
        },
        f"broken_by_{confirmed.attack}_alone": int(record.missed(confirmed).sum()),
        "broken_by_attacks_alone": int(record.gained(confirmed).sum()),
    }


def _fared(validity: Violations) -> dict[str, Any]:
    return {"violation_rate": _finite(validity.rate), "tightness": _finite(validity.tightness), "n": validity.n}


def _certified(evaluation: Evaluation, smoothed: Smoothed) -> dict[str, Any]:
    return {f"{radius:g}": shares(evaluation.certified(smoothed, radius)) for radius in smoothed.radii}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
