"""How far the first attacks of `standard` overestimate distances, and what leaving images early by that has missed."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradreg.attacks import attack, autoattack
from gradreg.attacks.band import Band
from gradreg.attacks.options import SearchOptions
from gradreg.attacks.run import Step, run_plan
from gradreg.attacks.suite import AttackOptions, sparing
from gradreg.norms import ThreatName

CONFIDENCE = 0.95
_MARGIN = 1.5


@dataclass(frozen=True)
class Overestimates:
    """Per image, the distance after the first attacks over the best that is known."""

    ratio: Tensor


@dataclass(frozen=True)
class LearnedRow:
    """The ratios of one network: distances after the first attacks over the best known."""

    data: str
    network: str
    threat: str
    images: int
    accuracy: float
    """Of the network, on images that it was not trained on."""
    median: float
    p99: float
    largest: float
    unknown: int
    """Images without a distance after the first attacks, which are never left early."""


@dataclass(frozen=True)
class JudgedRow:
    """The verdict that leaves images early beside the whole suite and AutoAttack, on some images at one radius."""

    network: str
    threat: str
    eps: float
    images: int
    robust: int
    """Images that we leave as robust, early or not."""
    left_early: int
    missed: int
    """Of those, the ones that AutoAttack breaks."""
    missed_early: int
    """Of those left early, the ones that AutoAttack or the whole suite breaks."""
    robust_whole: int
    """Images that remain robust against the whole suite."""
    robust_reference: int
    """Images that remain robust against AutoAttack."""
    propagations: float
    """Forwards and backwards, summed over the images; likewise the next two."""
    propagations_whole: float
    propagations_reference: float


def first_steps(threat: ThreatName) -> list[Step]:
    """The attacks after which images are left early."""
    plan = sparing(AttackOptions(threat=threat, eps=1.0, thorough=True).plan(), Band(1.0, 1, 1.0))
    return plan[: 1 + next(number for number, step in enumerate(plan) if step.beyond < math.inf)]


def overestimates(model: nn.Module, x: Tensor, y: Tensor, threat: ThreatName, seed: int) -> Overestimates:
    """Of images that are classified correctly. A miss at any radius needs a ratio above the band.

    The best that is known is that of all attacks of `standard` for the smallest distance.
    """
    first = run_plan(model, x, y, first_steps(threat), SearchOptions(threat=threat, seed=seed)).result.distance
    longest = attack(model, x, y, threat=threat, seed=seed, progress=False).distance
    return Overestimates(first / torch.minimum(first, longest))


def learned(ratios: Tensor) -> Band:
    """The largest ratio as a tolerance limit (Wilks 1941), with half of its excess over 1 added; in steps of 0.05.

    With 95 % confidence at most 1 − 0.05^(1/n) of images like these n exceed their largest ratio, whatever its
    distribution. That is about other images; the margin is for other networks, which no such limit is about. An image
    without a distance is never left, so it cannot exceed the band.
    """
    known, n = ratios[ratios.isfinite()], len(ratios)
    factor = 1 + _MARGIN * (float(known.max()) - 1)
    limit = 1 - (1 - CONFIDENCE) ** (1 / n)
    return Band(math.ceil(20 * factor - 1e-6) / 20, n, math.ceil(1e5 * limit) / 1e5)


def judge(
    model: nn.Module, x: Tensor, y: Tensor, *, network: str, threat: ThreatName, eps: float, seed: int
) -> JudgedRow:
    """All three verdicts on images that are classified correctly."""
    ours = attack(model, x, y, threat=threat, eps=eps, seed=seed, progress=False)
    whole = attack(model, x, y, threat=threat, eps=eps, seed=seed, thorough=True, progress=False)
    reference = autoattack(model, x, y, threat=threat, eps=eps, seed=seed)
    robust, early = ours.robust(eps), ours.left_early
    assert early is not None
    broken = ~reference.robust(eps)
    return JudgedRow(
        network,
        threat,
        eps,
        len(x),
        int(robust.sum()),
        int(early.sum()),
        int((robust & broken).sum()),
        int((early & (broken | ~whole.robust(eps))).sum()),
        int(whole.robust(eps).sum()),
        int(reference.robust(eps).sum()),
        *(float(result.propagations.sum()) for result in (ours, whole, reference)),
    )


def joined(parts: list[JudgedRow]) -> JudgedRow:
    """One row for all images of a network."""
    first, sums = parts[0], [field for field in JudgedRow.__dataclass_fields__ if field not in _SHARED]
    return JudgedRow(
        first.network, first.threat, first.eps, **{name: sum(getattr(part, name) for part in parts) for name in sums}
    )


_SHARED = ("network", "threat", "eps")
