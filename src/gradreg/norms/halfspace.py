"""The nearest point of a half-space inside a box: the exact answer for a linear model, a step for any other."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gradreg.norms.tensors import Norm, inner, per_image

# In which `across` makes up for what the walls cut off.
_ROUNDS = 8


def monotone(
    normal: Tensor, need: Tensor, lower: Tensor, upper: Tensor, solve: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """The solution for a norm in which pixels only move along their own sign of the normal, as in l1, l2 and l∞.

    `solve` gets the size of the normal's entries, what has to be gained and the room up to the wall, one row per image.
    """
    flat = normal.flatten(1)
    scale = flat.abs().amax(1, keepdim=True)
    # In units of the largest entry, so that tiny gradients do not vanish when squared.
    scale = scale.where(scale > 0, 1)
    room = torch.where(flat > 0, upper.flatten(1), -lower.flatten(1))
    moved = solve(flat.abs() / scale, (need[:, None] / scale).clamp(min=0), room)
    return (moved * flat.sign()).view_as(normal)


def stretch(size: Tensor, need: Tensor, room: Tensor, equal: bool) -> Tensor:
    """l2 and l∞ (`equal`): move by t·weight, but not through the wall, with the smallest t that gains enough.

    What t gains is concave and piecewise linear, so Newton's method from below ends after a few steps, exactly.
    """
    weight = (size > 0).to(size.dtype) if equal else size
    t = torch.zeros_like(need)
    for _ in range(12):
        moved = torch.minimum(t * weight, room)
        slope = (size * weight * (t * weight < room)).sum(1, keepdim=True)
        missing = (need - (size * moved).sum(1, keepdim=True)).clamp(min=0)
        t = t + (missing / slope).where(slope > 0, 0)
    return torch.minimum(t * weight, room)


def fill(size: Tensor, need: Tensor, room: Tensor) -> Tensor:
    """l1: take the pixels with the largest gradient one by one, each to its wall, until enough is gained."""
    order = size.sort(dim=1, descending=True, stable=True).indices
    steep, wide = size.gather(1, order), room.gather(1, order)
    gained = (steep * wide).cumsum(1) - steep * wide
    wanted = ((need - gained).clamp(min=0) / steep).where(steep > 0, 0)
    return torch.zeros_like(size).scatter(1, order, torch.minimum(wanted, wide))


def across(norm: Norm, normal: Tensor, need: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Any norm: along the steepest ascent, which is exact unless walls are in the way.

    Pixels that reach a wall stay there, and the steepest ascent of the others makes up for them. What is missing in the
    end is gained as in l2.
    """
    need, free = need.clamp(min=0), normal
    moved, gained = torch.zeros_like(normal), torch.zeros_like(need)
    for _ in range(_ROUNDS):
        missing = (need - gained).clamp(min=0)
        slope = norm.dual_norm(free).to(missing.dtype)
        step = norm.ascent(free) * per_image((missing / slope).where(slope > 0, 0), normal)
        wanted = (moved + step).to(normal.dtype)
        cut = wanted.clamp(lower, upper)
        free = free.where(cut == wanted, 0)
        # Where pixels are correlated, those at a wall may take back more than the others gain.
        better = inner(normal, cut) > gained
        moved = torch.where(per_image(better, normal).bool(), cut, moved)
        gained = inner(normal, moved)
    rest = monotone(normal, need - gained, lower - moved, upper - moved, partial(stretch, equal=False))
    return moved + rest
