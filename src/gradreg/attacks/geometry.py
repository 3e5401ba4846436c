"""The nearest point of a half-space inside the box: the exact answer for a linear model, a step for any other."""

import torch
from torch import Tensor

from gradreg.norms import Threat, per_image


def nearest(threat: Threat, normal: Tensor, offset: Tensor, origin: Tensor, low: float, high: float) -> Tensor:
    """The smallest δ, in the threat's norm, with ⟨normal, δ⟩ ≥ offset and origin + δ in the box.

    Where the box does not reach the half-space, the corner of the box nearest to it; 0 for a zero normal.
    """
    flat, start = normal.flatten(1), origin.flatten(1)
    scale = flat.abs().amax(1, keepdim=True)
    # In units of the largest entry, so that tiny gradients do not vanish when squared.
    size = flat.abs() / scale.where(scale > 0, 1)
    need = (offset[:, None] / scale.where(scale > 0, 1)).clamp(min=0)
    room = torch.where(flat > 0, high - start, start - low)
    moved = _fill(size, need, room) if threat.name == "l1" else _stretch(size, need, room, threat.name == "linf")
    return (moved * flat.sign()).view_as(origin)


def linear_distance(threat: Threat, margin: Tensor, gradient: Tensor) -> Tensor:
    """|m| / ‖∇m‖_*: how far a linear model's boundary would be, without the box; inf for a zero gradient."""
    return margin.abs() / threat.dual_norm(gradient).to(margin.dtype)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ per image."""
    return (a * b).flatten(1).sum(1)


def rescale(v: Tensor, size: Tensor, to: Tensor) -> Tensor:
    """`v`, whose norm is `size`, made to have norm `to`; 0 stays 0."""
    return (v * per_image((to / size).where(size > 0, 0), v)).to(v.dtype)


def _stretch(size: Tensor, need: Tensor, room: Tensor, equal: bool) -> Tensor:
    """l2 and l∞: move by t·weight, but not through the wall, with the smallest t that gains enough.

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


def _fill(size: Tensor, need: Tensor, room: Tensor) -> Tensor:
    """l1: take the pixels with the largest gradient one by one, each to its wall, until enough is gained."""
    order = size.sort(dim=1, descending=True, stable=True).indices
    steep, wide = size.gather(1, order), room.gather(1, order)
    gained = (steep * wide).cumsum(1) - steep * wide
    wanted = ((need - gained).clamp(min=0) / steep).where(steep > 0, 0)
    return torch.zeros_like(size).scatter(1, order, torch.minimum(wanted, wide))
