"""Who is measured: our attacks and suites, and the peers', each as a call on some of the images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.attacks import quantile
from bench.options import PEERS, Lengths
from bench.peers import Clock, Outcome, fixed_attacks, minimal_attacks, run_peer, version
from gradreg.attacks import AttackResult, attack, autoattack, boundary, carlini_wagner
from gradreg.attacks.suite import SuiteName
from gradreg.norms import ThreatName

# The radii that PGD tries, as multiples of the one that robust accuracy is measured at.
GRID = tuple(round(float(2 ** (i / 4)), 3) for i in range(-8, 5))
SUITES: tuple[SuiteName, ...] = ("quick", "standard", "paper")
Trial = Callable[[Tensor, Tensor], Outcome]
# A text stands for a contender that cannot run, and says why.
Plan = dict[str, Trial | str]


@dataclass(frozen=True)
class Setting:
    """What all contenders share."""

    model: nn.Module
    threat: ThreatName
    eps: float
    peers: Sequence[str]
    seed: int
    sizes: Lengths


def half_radius(model: nn.Module, x: Tensor, y: Tensor, threat: ThreatName, seed: int) -> float:
    """The radius that about half of these images survive, two digits of it: those measured are not among them."""
    distance = attack(model, x, y, threat=threat, attacks="quick", seed=seed).distance
    return float(f"{quantile(distance, 0.5):.2g}")


def minimal_plan(setting: Setting) -> Plan:
    """The contenders for the smallest distance."""
    model, threat, sizes = setting.model, setting.threat, setting.sizes
    on: dict[str, Any] = {"threat": threat, "seed": setting.seed}
    plan: Plan = {suite: partial(_ours, partial(attack, model, attacks=suite, **on)) for suite in SUITES}
    plan["C&W 6×100"] = partial(_ours, partial(carlini_wagner, model, **on))
    plan["Boundary 1000"] = partial(_ours, partial(boundary, model, **on))
    if threat == "l2" and "foolbox" in setting.peers:
        slow = partial(carlini_wagner, model, **on, rounds=sizes.rounds, steps=sizes.cw)
        plan[f"C&W {sizes.rounds}×{sizes.cw}"] = partial(_ours, slow)
        long = partial(boundary, model, **on, steps=sizes.boundary)
        plan[f"Boundary {sizes.boundary}"] = partial(_ours, long)
    radii = [setting.eps * factor for factor in GRID]
    for peer in setting.peers:
        absent = _absent(peer)
        for name, run in minimal_attacks(peer, threat, radii, sizes).items():
            plan[f"{peer} {name}"] = absent or partial(run_peer, run, model, **on)
    return plan


def fixed_plan(setting: Setting) -> Plan:
    """The contenders at one radius."""
    model, threat, eps = setting.model, setting.threat, setting.eps
    on: dict[str, Any] = {"threat": threat, "seed": setting.seed}
    plan: Plan = {}
    for suite in SUITES[:2]:
        plan[suite] = partial(_ours, partial(attack, model, attacks=suite, eps=eps, **on))
    for peer in setting.peers:
        absent = _absent(peer)
        for name, run in fixed_attacks(peer, threat, eps).items():
            plan[f"{peer} {name}"] = absent or partial(run_peer, run, model, within=eps, **on)
        if peer == "autoattack":
            # The same seed for everybody.
            plan["autoattack standard"] = absent or partial(_reference, partial(autoattack, model, eps=eps, **on))
    return plan


def _absent(peer: str) -> str:
    return "" if version(peer) else f"not installed: pip install {PEERS[peer][1]}"


def _ours(call: Callable[[Tensor, Tensor], AttackResult], x: Tensor, y: Tensor) -> Outcome:
    clock = Clock()
    result = call(x, y)
    cpu, wall = clock.read()
    forwards, backwards = (float(counts.double().mean()) for counts in (result.forwards, result.backwards))
    return Outcome(result.distance, forwards, backwards, int(result.propagations.max()), cpu, wall)


def _reference(call: Callable[[Tensor, Tensor], AttackResult], x: Tensor, y: Tensor) -> Outcome:
    """AutoAttack, whose counts are averages already."""
    clock = Clock()
    try:
        found = _ours(call, x, y)
    except Exception as error:
        cpu, wall = clock.read()
        return Outcome(torch.full((len(x),), torch.inf), 0.0, 0.0, None, cpu, wall, f"failed: {error}")
    return Outcome(found.distance, found.forwards, found.backwards, None, found.cpu, found.wall)
