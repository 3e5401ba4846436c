"""The numbers of a card, computed from an evaluation: accuracies with intervals, and RobustBench's fields."""

from dataclasses import dataclass, replace
from math import isclose
from typing import Any

from gradreg.config.fractions import radius_name
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.evaluation.shares import Share, share_of, top_k
from gradreg.report.numbers import ball, clean_errors
from gradreg.report.numbers import share as counted

_AUTOATTACK = ("autoattack", "standard")


@dataclass(frozen=True)
class Remarks:
    """What no measurement knows: notes for the card, and whose network it is."""

    note: tuple[str, ...] = ()
    """A sentence for the card and the footnotes, as what is special about the images; may be repeated."""
    trained_on: str = ""
    """The machine that it was trained on, for the card; default: what the run recorded."""
    authors: str = ""
    """Whose network it is, for robustbench.json."""
    link: str = ""
    """Where it is described, for robustbench.json."""
    venue: str = "N/A"
    """Where it was published, for robustbench.json."""


@dataclass(frozen=True)
class Figure:
    """A fraction of correctly classified images, and under which conditions."""

    what: str
    right: Share


def percent(share: Share) -> str:
    """With two decimals and without a sign, as RobustBench writes it."""
    return f"{100 * share.value:.2f}"


def figures(evaluation: Evaluation) -> list[Figure]:
    """Clean, robust and certified accuracy at the usual radii; robust to both our attacks and AutoAttack."""
    found = [Figure("clean accuracy", clean(evaluation))]
    for record in evaluation.threats.values():
        found += [
            Figure(f"robust accuracy, {ball(record.symbol, radius)}", record.robust_accuracy(radius))
            for radius in evaluation.data.usual_radii(record.threat)
        ]
        found += [
            Figure(
                f"robust accuracy, {ball(record.symbol, each.eps)}, by AutoAttack ({each.version}) alone",
                share_of(each.robust),
            )
            for each in record.confirmed
        ]
    for smoothed in evaluation.smoothing:
        found += [
            Figure(
                f"certified accuracy, l2 {radius:g}, smoothed with σ = {smoothed.sigma:g}",
                share_of(evaluation.certified(smoothed, radius)),
            )
            for radius in evaluation.data.usual_radii("l2")
            if radius in smoothed.radii
        ]
    return [replace(figure, what=top_k(figure.what, evaluation.settings.topk)) for figure in found]


def clean(evaluation: Evaluation) -> Share:
    """Over the whole test set if it was evaluated, else over the images that were attacked."""
    errors, n = clean_errors(evaluation)
    return counted(n - errors, n)


def entries(evaluation: Evaluation, remarks: Remarks) -> dict[str, dict[str, Any]]:
    """For each threat, the fields of a RobustBench entry at the threat's usual radius.

    `reported` is robust to all attacks; `autoattack_acc` is None unless AutoAttack was run at that radius, and
    `unreliable` is None without a diagnosis. Empty for a top-k evaluation, since RobustBench is about top-1,
    and without norms that have no short name.
    """
    if evaluation.settings.topk > 1:
        return {}
    return {
        name: _entry(evaluation, record, remarks) for name, record in evaluation.threats.items() if record.norm is None
    }


def _entry(evaluation: Evaluation, record: ThreatRecord, remarks: Remarks) -> dict[str, Any]:
    radius = evaluation.data.usual_radius(record.threat)
    confirmed = [
        share_of(each.robust)
        for each in record.confirmed
        if (each.attack, each.version) == _AUTOATTACK and isclose(each.eps, radius, rel_tol=1e-6)
    ]
    return {
        "link": remarks.link,
        "name": evaluation.subject.name,
        "authors": remarks.authors,
        "additional_data": False,
        "number_forward_passes": 1,
        "dataset": evaluation.data.name,
        "venue": remarks.venue,
        "architecture": evaluation.subject.architecture,
        "eps": radius_name(radius),
        "clean_acc": percent(clean(evaluation)),
        "reported": percent(record.robust_accuracy(radius)),
        "autoattack_acc": percent(confirmed[0]) if confirmed else None,
        "unreliable": any(flag.severity != "info" for flag in record.flags) if record.flags else None,
        "footnote": " ".join([_footnote(evaluation), *remarks.note]),
    }


def _footnote(evaluation: Evaluation) -> str:
    n, all_of_them = len(evaluation), evaluation.data.images
    clean_of = all_of_them if evaluation.clean is not None else n
    return (
        f"Reported: gradreg's attacks ({evaluation.settings.attacks}) on {n:,} of {all_of_them:,} test images, seed "
        f"{evaluation.settings.seed}; clean accuracy on {clean_of:,} of them."
    )
