"""Evaluations of a realistic size with invented but plausible figures; deterministic, and no model is run."""

import math

import torch
from torch import Tensor

from gradreg.diagnosis.flags import Flag, left_out, make
from gradreg.evaluation.gallery import Gallery, Segment
from gradreg.evaluation.record import (
    Attacked,
    Bounded,
    Evaluation,
    Origin,
    Settings,
    Smoothed,
    TestSet,
    ThreatRecord,
)
from gradreg.norms import THREATS, ThreatName
from gradreg.runs.subject import Subject

CLASSES = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# name, objective, clean error, median l2 distance, hours
KINDS = (
    ("undefended", "undefended", 0.06, 0.12, 1.2),
    ("gradient penalty, λ = 0.1", "gradient", 0.09, 0.55, 2.3),
    ("gradient penalty, λ = 1", "gradient", 0.16, 0.85, 2.4),
    ("7-step adversarial training", "adversarial", 0.17, 0.8, 8.1),
)
_ATTACKS = ("apgd", "fmn", "ddn", "carlini-wagner", "boundary", "square")


def generated(
    models: int = 4,
    images: int = 300,
    threats: tuple[ThreatName, ...] = ("linf", "l2"),
    side: int = 32,
    kept: int = 6,
) -> list[Evaluation]:
    """That many models, four kinds in turn; every third is suspicious in one threat, the fourth broken.

    So many pictures are kept of each.
    """
    return [_evaluation(i, images, threats, side, kept) for i in range(models)]


def _evaluation(i: int, n: int, threats: tuple[ThreatName, ...], side: int, kept: int) -> Evaluation:
    source = torch.Generator().manual_seed(i)
    name, objective, clean, distance, hours = KINDS[i % len(KINDS)]
    label = torch.randint(0, 10, (n,), generator=torch.Generator().manual_seed(99))
    wrong = torch.rand(n, generator=source) < clean
    spread = torch.exp(0.7 * torch.randn(n, generator=source)) * (~wrong)
    # 28 pixels a side of three colours: l1 and l2 of a typical perturbation are so many times its l∞.
    scales = {"l2": distance, "linf": distance / 22, "l1": distance * 19}
    record = {str(threat): _record(i, threat, spread * scales[threat], wrong, source, side, kept) for threat in threats}
    radius = (0.7 * spread * distance).clamp(max=0.95)
    return Evaluation(
        subject=Subject(
            name if i < len(KINDS) else f"{name}, run {i // len(KINDS) + 1}",
            f"runs/{objective}-{i}",
            "resnext34_2x32",
            5_220_000,
            objective,
            {"data": "cifar10", "model": {"name": "resnext34_2x32"}, "epochs": 30, "seed": i},
            30,
            hours + 0.1 * (i // len(KINDS)),
        ),
        data=TestSet("cifar10", 10_000, CLASSES, (3, side, side)),
        settings=Settings(seed=0, attacks="standard", regularity="ascent"),
        origin=Origin("0.1.0", "2.13.0", "9b70e2a+", "2 cores of a Xeon at 2.2 GHz", "2026-11-15T23:40:00+00:00"),
        index=torch.arange(n) * 7,
        label=label,
        prediction=torch.where(wrong, (label + 1) % 10, label),
        margin=torch.where(wrong, 0.3, -0.7),
        threats=record,
        smoothing=(
            Smoothed(0.25, 0.001, 10_000, (), label.clone(), radius, torch.full((n,), 4000), 310.0),
        ) if "l2" in threats else (),
        clean=(round(10_000 * clean), 10_000),
    )  # fmt: skip


def _record(
    i: int, threat: ThreatName, distance: Tensor, wrong: Tensor, source: torch.Generator, side: int, kept: int
) -> ThreatRecord:
    n = len(distance)
    strength = torch.rand(n, generator=source)
    won = [
        "clean" if w else _ATTACKS[min(5, int(6 * s**2))]
        for w, s in zip(wrong.tolist(), strength.tolist(), strict=True)
    ]
    if i % 4 == 2:
        distance = distance.where(torch.rand(n, generator=source) > 0.02, math.inf)
        won = ["" if math.isinf(d) else w for d, w in zip(distance.tolist(), won, strict=True)]
    tightness = 0.45 + 0.4 * torch.rand(n, generator=source) + 0.35 * (torch.rand(n, generator=source) < 0.03)
    end = 3 * THREATS[threat].usual_radii[-1]
    bound = (distance * tightness).clamp(max=end)
    grid = tuple(end * k / 10 for k in range(1, 11))
    return ThreatRecord(
        threat=threat,
        attacked=Attacked(distance, tuple(won), torch.full((n,), 420), torch.full((n,), 390), 412.0),
        bounded=None if i % 4 == 3 and threat == "linf" else Bounded(
            1 / (0.1 + distance.clamp(max=9)), bound / 3, bound, "ascent", 2.4, grid,
            tuple(0.1 * eps for eps in grid), 320, (), 64.0,
        ),
        refusal="3 of 320 calibration images have a gradient of exactly zero." if i % 4 == 3 else "",
        flags=_flags(i, threat, n),
        gallery=_gallery(distance, source, side, kept),
    )  # fmt: skip


def _flags(i: int, threat: ThreatName, n: int) -> tuple[Flag, ...]:
    passed = [
        make("train-mode", "info", "The model is in eval mode."),
        make("randomised", "info", "Five passes agree to 0.", value=0.0, threshold=1e-4),
        make("slope-uncorrelated", "info", "Slopes and gradients correlate with 0.998.", value=0.998, threshold=0.9),
        make("single-step-wins", "info", f"One step breaks 31.0 %, twenty break 42.3 % of {n} images.", n=n),
        make("unbounded-attack-fails", "info", "Within the whole box 100.0 % of images are broken.", value=1.0),
        left_out(["gradient-free-wins"], "because no query budget was given"),
    ]
    if i % 4 == 2 and threat == "l2":
        finding = f"Doubling the steps breaks 2.3 % more of {n} images, but 1.0 % is the limit."
        passed.insert(2, make("not-converged", "warning", finding, value=0.023, threshold=0.01, n=n))
    if i % 4 == 3 and threat == "linf":
        finding = f"Square breaks 18.3 % of the images that gradients could not, of {n}; 2.0 % is the limit."
        passed.insert(1, make("gradient-free-wins", "error", finding, value=0.183, threshold=0.02, n=n))
        passed.append(make("unstable-gradient", "warning", "Gradients turn by 0.72 under noise.", value=0.72))
    return tuple(passed)


def _gallery(distance: Tensor, source: torch.Generator, side: int, kept: int) -> Gallery:
    rows = ((distance > 0) & distance.isfinite()).nonzero().flatten()[:kept]
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    turns = torch.rand(len(rows), 3, 1, 1, generator=source) * 6
    clean = 0.5 + 0.4 * torch.sin(3 * x * turns + 2 * y * turns.flip(1) + turns)
    noise = 0.03 * torch.randn(clean.shape, generator=source)
    predictions = tuple(int(row) % 10 for row in rows)
    places = tuple(step / 4 for step in range(7))
    margin = torch.linspace(-0.8, 0.4, 7).expand(len(rows), -1).contiguous()
    return Gallery(tuple(rows.tolist()), clean, (clean + noise).clamp(0, 1), predictions, Segment(places, margin))
