"""An evaluation as people and other programs meet it: a summary, and one record per image."""

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NamedTuple

from gradreg.codec import split
from gradreg.config.fractions import radius_name
from gradreg.diagnosis.flags import verdict
from gradreg.display import charts
from gradreg.display.curves import accuracy_chart
from gradreg.display.numbers import distance_name, interval, percent
from gradreg.display.plot import plot
from gradreg.display.records import Column, Records
from gradreg.display.summary import Summary, images
from gradreg.evaluation.record import Evaluation, Smoothed, ThreatRecord
from gradreg.evaluation.redrawn import Redrawn
from gradreg.evaluation.shares import Share, share_of, top_k
from gradreg.evaluation.summary import summary as figures
from gradreg.evaluation.table import take_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def summary(evaluation: Evaluation) -> Summary:
    """Clean and robust accuracy, what the diagnosis says of it, and what is certified."""
    data, topk = evaluation.data, evaluation.settings.topk
    shown = [(top_k("clean accuracy", topk), _share(share_of(~evaluation.wrong)))]
    for record in evaluation.threats.values():
        shown.append((f"{record.symbol} robust", _robust(evaluation, record)))
        shown.append((f"{record.symbol} distance", _distance(record)))
        shown.append((f"{record.symbol} verdict", verdict(record.flags).word if record.flags else ""))
    shown += [(f"smoothed, σ = {each.sigma:g}", _certified(evaluation, each)) for each in evaluation.smoothing]
    return Summary(f"Evaluation: {evaluation.subject.name} on {images(len(evaluation))} of {data.name}", shown)


def records(evaluation: Evaluation) -> Records:
    """The columns of images.csv, with what they mean."""
    plain, tensors = split(evaluation)
    found = take_columns(plain, {path: tensor for path, tensor in tensors.items() if ".gallery." not in path})
    subject, data, origin = evaluation.subject, evaluation.data, asdict(evaluation.origin)
    settings = {
        "model": {name: getattr(subject, name) for name in ("name", "source", "architecture", "parameters")},
        "data": {"name": data.name, "images": data.images, "classes": data.classes, "shape": data.shape},
        "evaluation": plain["settings"],
        "origin": {name: origin[name] for name in ("commit", "machine", "created")},
        "summary": figures(evaluation),
    }
    columns = {name: _column(name, values) for name, values in found.items() if values is not None}
    versions = {"gradreg": evaluation.origin.gradreg, "torch": evaluation.origin.torch}
    return Records("evaluation", settings, columns, versions)


def plotted(evaluation: Evaluation) -> "Figure":
    """A panel for each threat: the share of images that attacks did not break, beside bounds and certificates."""
    panels = tuple(_panel(evaluation, record) for record in evaluation.threats.values())
    return plot(charts.Figure("robust-accuracy", (panels,), 2.25))


def _panel(evaluation: Evaluation, record: ThreatRecord) -> charts.Chart:
    found = {"attacks": (record.distance, math.inf)}
    if (redrawn := Redrawn.of(evaluation.fresh, record)) is not None:
        found = {"fixed draws": found["attacks"], "fresh draws": (redrawn.fresh_distance, math.inf)}
    if record.bounded is not None and record.bounded.eps:
        found["ω-bound (heuristic)"] = (record.bounded.omega_bound, record.bounded.eps[-1])
    if record.threat == "l2":
        for each in evaluation.smoothing:
            # An image without the correct class fails at every radius, 0 included.
            radius = each.radius.double().where(each.prediction == evaluation.label, 0.0)
            found[f"smoothed, σ = {each.sigma:g}"] = (radius, each.radii[-1] if each.radii else math.inf)
    radii = [(radius, radius_name(radius)) for radius in evaluation.data.usual_radii(record.threat)]
    return replace(accuracy_chart(record.threat, record.symbol, found, radii), title=record.symbol)


class _About(NamedTuple):
    about: str
    unit: str = ""
    missing: str = ""


_ABOUT = {
    "index": _About("Position in the test set."),
    "label": _About("The right class.", "class"),
    "prediction": _About("The model's class; the label if that is among the k largest logits.", "class"),
    "margin": _About("k-th largest other softmax probability minus the label's; negative: correct.", "probability"),
    "fresh": _About("The average of fresh draws of a randomised model misclassifies the image."),
    "fresh_share": _About("Share of these draws that misclassify it, each by itself.", "fraction"),
    ".fresh": _About("The average of fresh draws of a randomised model misclassifies the adversarial image."),
    ".fresh_share": _About("Share of these draws that misclassify it, each by itself.", "fraction"),
    ".distance": _About(
        "Distance of the nearest adversarial image found, in this norm; 0: misclassified as it is.",
        "pixels",
        "None was found, which proves nothing.",
    ),
    ".winner": _About('Attack that found it; "clean": none was needed, "": none succeeded.'),
    ".forwards": _About("Forwards of the attacks.", "propagations"),
    ".backwards": _About("Backwards of the attacks.", "propagations"),
    ".gradient_norm": _About("Dual norm of the gradient of the margin.", "probability per pixel"),
    ".lipschitz_bound": _About("L-bound on the distance; heuristic.", "pixels"),
    ".omega_bound": _About("ω-bound on the distance; heuristic.", "pixels"),
    ".calibrated_bound": _About("Bound that holds against these attacks for a share 1 − α of images.", "pixels"),
    ".prediction": _About("Class of the smoothed classifier; -1: it abstained.", "class"),
    ".radius": _About("l2 radius within which that class holds, wrong with probability α at most.", "pixels"),
    ".samples": _About("Noisy images classified for it.", "propagations"),
    ".frequency": _About("Share of noisy images given the class.", "fraction"),
}
# "linf.autoattack[0.0313725]": at that radius.
_CONFIRMED = _About("Right before and after the reference attack at the radius in brackets.")


def _column(name: str, values: object) -> Column:
    threat, dot, field = name.rpartition(".")
    known = _ABOUT.get(dot + field) if threat or not dot else None
    about, unit, missing = known or _CONFIRMED
    return Column(about, values, unit, missing)  # type: ignore[arg-type]


def _robust(evaluation: Evaluation, record: ThreatRecord) -> str:
    radii = evaluation.data.usual_radii(record.threat)
    words = ", ".join(f"{percent(record.robust_accuracy(eps).value)} at {radius_name(eps)}" for eps in radii)
    redrawn = Redrawn.of(evaluation.fresh, record)
    if redrawn is None:
        return words
    return f"{words}; fresh draws: {', '.join(percent(share_of(redrawn.robust(eps)).value) for eps in radii)}"


def _distance(record: ThreatRecord) -> str:
    mean, unbroken = record.mean_distance(), int((~record.distance.isfinite()).sum())
    words = "" if mean != mean else f"mean {distance_name(record.threat, mean)}"
    return words + (f"; no adversarial image found for {unbroken}" if unbroken else "")


def _certified(evaluation: Evaluation, smoothed: Smoothed) -> str:
    shares = ((radius, share_of(evaluation.certified(smoothed, radius))) for radius in smoothed.radii)
    return "certified " + ", ".join(f"{percent(share.value)} at {radius:g}" for radius, share in shares)


def _share(share: Share) -> str:
    return f"{percent(share.value)} (95 %: {interval(share.low, share.high)})"
