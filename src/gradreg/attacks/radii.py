"""A schedule, and how an attack inside a ball of fixed radius becomes one for the smallest distance."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gradreg.attacks.geometry import linear_distance
from gradreg.attacks.search import Search

# An attack inside balls of these radii, one per image; the number counts the attempts.
Inside = Callable[[Tensor, int], None]

# Distance kept from the surface of the ball, so that rounding cannot carry a point beyond the requested radius.
_INSIDE = 1 - 1e-5


def cosine(step: int, steps: int, first: float, last: float) -> float:
    """From `first` to `last` along half a period of the cosine."""
    return last + (first - last) * (1 + math.cos(math.pi * step / max(steps - 1, 1))) / 2


def geometric(step: int, steps: int, first: float, last: float) -> float:
    """From `first` to `last` by equal factors."""
    return float(first * (last / first) ** (step / max(steps - 1, 1)))


def smallest_radius(search: Search, run: Inside, rounds: int) -> None:
    """Run an attack inside smaller and smaller balls, with one radius per image.

    Below the best known distance by a gap; the gap stays after a success and shrinks to a third after a failure. An
    image without an adversarial image starts with the distance of the linearised model, doubled until one is found.
    With radii given (`Search.aim`), every round is one more attempt at them.
    """
    if search.fixed_radius:
        rounding = search.threat.norm(torch.full_like(search.x[:1], torch.finfo(search.x.dtype).eps / 2))
        radius = torch.minimum(search.goal * _INSIDE, search.goal - rounding).clamp(min=0)
        for number in range(rounds):
            run(radius, number)
        return
    # Cold or warm is decided here, once: a warm start is close, and its distance must not be halved.
    gap = torch.where(search.found, 0.03, 0.3).to(search.distance.dtype)
    unknown = torch.zeros_like(gap)

    def linearise() -> None:
        nonlocal unknown
        unknown = 1.5 * linear_distance(search.threat, *search.margin_and_gradient(search.x))

    search.within(search.anywhere, linearise)
    unknown = torch.where(unknown.isfinite() & (unknown > 0), unknown, 0.01).minimum(search.widest)
    for number in range(rounds):
        far = search.distance
        radius = torch.where(search.found, far * (1 - gap), unknown)
        search.within(radius, partial(run, radius * _INSIDE, number))
        # Pixels are rounded after the projection, so where they count much a hit may lie a little outside of the ball.
        hit = torch.where(far.isfinite(), search.distance <= far * (1 - gap / 2), search.found)
        gap = torch.where(hit, gap, gap / 3)
        unknown = torch.where(hit, unknown, 2 * unknown)
