"""Every image of every model as plain data, for the part of the page where they are sorted, searched and seen."""

import json
import math
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup
from torch import Tensor

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Bounded, Evaluation, ThreatRecord
from gradreg.report.comparison import Comparison


def data(comparison: Comparison) -> dict[str, Any]:
    """Columns as lists, one entry per image: what no adversarial image was found for has no distance (null)."""
    attacks: dict[str, int] = {}
    return {
        "classes": comparison.evaluations[0].data.classes,
        "threats": [_threat(comparison, threat) for threat in comparison.threats],
        "models": [_model(comparison, evaluation, attacks) for evaluation in comparison.evaluations],
        "attacks": list(attacks),
    }


def embedded(content: Any) -> Markup:
    """JSON that may stand inside a script element, without spaces; nothing in it can end the element."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _threat(comparison: Comparison, threat: str) -> dict[str, Any]:
    """The norm, its radii, and where a line of distances ends: past the radii and most distances of all models."""
    radii = comparison.radii(threat)
    found = [record.distance[record.distance.isfinite()].double() for _, record in comparison.under(threat)]
    most = [float(distance.quantile(0.9)) for distance in found if len(distance)]
    return {
        "name": threat,
        "symbol": comparison.symbol(threat),
        "in255": comparison.in_255(threat),
        "radii": [[radius, radius_name(radius)] for radius in radii],
        "end": max([1.1 * radii[-1], *most]),
    }


def _model(comparison: Comparison, evaluation: Evaluation, attacks: dict[str, int]) -> dict[str, Any]:
    return {
        "name": evaluation.subject.name,
        "index": evaluation.index.tolist(),
        "label": evaluation.label.tolist(),
        "prediction": evaluation.prediction.tolist(),
        "margin": _numbers(evaluation.margin),
        "threats": {
            str(comparison.threats.index(threat)): _found(record, attacks)
            for threat, record in evaluation.threats.items()
        },
        "smoothed": [
            {
                "sigma": smoothed.sigma,
                # Only where the smoothed classifier is right, since only then its certificate says anything good.
                "radius": _numbers(smoothed.radius.where(smoothed.prediction == evaluation.label, 0.0)),
            }
            for smoothed in evaluation.smoothing
        ],
    }


def _found(record: ThreatRecord, attacks: dict[str, int]) -> dict[str, Any]:
    winners = [attacks.setdefault(name, len(attacks)) for name in record.attacked.winner]
    columns = {"distance": _numbers(record.distance), "winner": winners}
    return columns | ({} if record.bounded is None else _bounds(record.bounded))


def _bounds(bounded: Bounded) -> dict[str, Any]:
    columns = {"L": _numbers(bounded.lipschitz_bound), "omega": _numbers(bounded.omega_bound)}
    return columns | ({"calibrated": _numbers(bounded.calibrated.bound)} if bounded.calibrated is not None else {})


def _numbers(values: Tensor) -> list[float | None]:
    return list(_rounded(values.double().tolist()))


def _rounded(values: Iterable[float]) -> Iterable[float | None]:
    """Three digits are shown, so four are kept: a page of ten models of 1000 images stays small."""
    for value in values:
        rounded = float(f"{value:.4g}") if math.isfinite(value) else None
        yield int(rounded) if rounded is not None and rounded == int(rounded) else rounded
