"""Evaluations small enough to be checked by hand; the report's tests and the storage's stand on them."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from gradreg.diagnosis.flags import Flag
from gradreg.evaluation.gallery import Gallery
from gradreg.evaluation.record import (
    Attacked,
    Bounded,
    Confirmed,
    Evaluation,
    Origin,
    Settings,
    Smoothed,
    TestSet,
    ThreatRecord,
)
from gradreg.norms import THREATS
from gradreg.runs.subject import Subject

INF = float("inf")

# The radii of photographs, which the distances below are chosen for.
RADII = {name: threat.usual_radii for name, threat in THREATS.items()}


def handmade(name: str = "by hand", objective: str = "gradient", hours: float | None = 2.0) -> Evaluation:
    """Ten images, the first misclassified. l2 distances 0, 0.1 … 0.9; for l∞ a hundredth of it, the last unbroken."""
    n = 10
    label = torch.arange(n) % 3
    prediction = label.clone()
    prediction[0] = 2
    l2 = torch.arange(n) / 10
    linf = torch.arange(n) / 100
    linf[-1] = INF
    return Evaluation(
        subject=Subject(name, f"runs/{name}", "small", 1234, objective, {"epochs": 3, "seed": 0}, 3, hours),
        data=TestSet("mnist5k", 1000, ("zero", "one", "two"), (1, 4, 4), RADII),
        settings=Settings(seed=0, attacks="standard", regularity="ascent"),
        origin=Origin("0.1.0", "2.13.0", "0123abc", "two cores", "2026-01-02T03:04:05+00:00"),
        index=torch.arange(n) * 7,
        label=label,
        prediction=prediction,
        margin=torch.linspace(0.1, -0.8, n),
        threats={"l2": _record("l2", l2), "linf": _record("linf", linf)},
        smoothing=(
            Smoothed(
                sigma=0.25,
                alpha=0.001,
                n=1000,
                radii=(0.25, 0.5),
                prediction=torch.where(torch.arange(n) < 2, -1, label),
                radius=torch.tensor([0.0, 0.0, 0.0, 0.0, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5]),
                samples=torch.full((n,), 500),
                seconds=3.0,
            ),
        ),
        clean=(100, 1000),
    )


def renamed(evaluation: Evaluation, name: str, **changes: object) -> Evaluation:
    """The same under another name."""
    return replace(evaluation, subject=replace(evaluation.subject, name=name, **changes))  # type: ignore[arg-type]


def confirmation(eps: float, broken: Sequence[int], version: str = "standard") -> Confirmed:
    """An AutoAttack on the ten images that broke these, with 800 forwards and 400 backwards per image."""
    robust = torch.ones(10, dtype=torch.bool)
    robust[list(broken)] = False
    return Confirmed("autoattack", version, eps, robust, 800.0, 400.0, 60.0)


def confirmed(evaluation: Evaluation, threat: str, *found: Confirmed) -> Evaluation:
    """The same with these confirmations of a threat."""
    record = replace(evaluation.threats[threat], confirmed=found)
    return replace(evaluation, threats={**evaluation.threats, threat: record})


def _record(threat: str, distance: torch.Tensor) -> ThreatRecord:
    n = len(distance)
    finite = distance.where(distance.isfinite(), 0.2)
    clean = torch.linspace(0, 1, 2 * 16).view(2, 1, 4, 4)
    flag = Flag(
        code="single-step-wins",
        severity="info",
        evidence={"fgsm": 0.1, "pgd": 0.2, "n": n},
        finding="One step breaks 10 %, twenty break 20 % of 10 images.",
        advice="Nothing to do.",
    )
    return ThreatRecord(
        threat=threat,
        attacked=Attacked(
            distance=distance,
            winner=("clean", *("fmn" if i % 2 else "apgd" for i in range(1, n))),
            forwards=torch.arange(n) + 100,
            backwards=torch.arange(n) + 50,
            seconds=12.5,
        ),
        bounded=Bounded(
            gradient_norm=torch.linspace(0.1, 1.0, n),
            lipschitz_bound=finite / 4,
            omega_bound=finite / 2,
            method="ascent",
            lipschitz=2.0,
            eps=(0.25, 0.5, 1.0),
            omega=(0.1, 0.3, 0.7),
            calibration_images=320,
            flags=(),
            seconds=1.5,
        ),
        refusal="",
        flags=(flag,),
        gallery=Gallery(rows=(1, 2), clean=clean, adversarial=(clean + 0.1).clamp(0, 1), prediction=(2, 0)),
    )
