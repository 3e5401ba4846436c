"""Nearest points of ellipsoids and weighted balls, by the multiplier of their one constraint."""

import torch
from torch import Tensor

from gradreg.norms.tensors import Norm, inner, per_image, sum_of_absolutes

# Newton's method from below needs about six steps; an accelerated descent about √(condition) for a digit.
_NEWTON, _DESCENT = 40, 2000


def ellipsoid(v: Tensor, axes: Tensor, radius: Tensor) -> Tensor:
    """The nearest z with Σ axes·z² ≤ radius², for rows v and one radius per row.

    z = v/(1 + λ·axes), and λ solves the secular equation 1/‖√axes·z‖ = 1/radius. Its left side is concave and rises
    with λ, so Newton's method from λ = 0 climbs to the solution and never passes it.
    """
    radius = radius.reshape(-1, 1)
    multiplier = torch.zeros_like(radius)
    squares = axes * v.square()
    for _ in range(_NEWTON):
        shrink = 1 / (1 + multiplier * axes)
        square = (squares * shrink.square()).sum(1, keepdim=True)
        fall = (squares * axes * shrink**3).sum(1, keepdim=True)
        outside = square.sqrt() > radius
        step = square / fall.where(outside, 1) * (square.sqrt() / radius.where(outside & (radius > 0), 1) - 1)
        step = step.where(outside & (radius > 0), 0)
        multiplier = multiplier + step
        if bool((step <= 4 * torch.finfo(v.dtype).eps * multiplier).all()):
            break
    z = v / (1 + multiplier * axes)
    length = (axes * z.square()).sum(1, keepdim=True).sqrt()
    # The last step leaves a rounding error outside; at radius 0 no multiplier is large enough.
    return z * (radius / length.where(length > 0, 1)).clamp(max=1)


def diamond(v: Tensor, weights: Tensor, radius: Tensor) -> Tensor:
    """The nearest z with Σ weights·|z| ≤ radius, for rows v: soft thresholding by θ·weights (Duchi et al. 2008).

    Pixels leave in the order of |v|/weights, so one sort shows which of them are left, and θ with them.
    """
    size, radius = v.abs(), radius.reshape(-1, 1)
    weights = weights.expand_as(size)
    ratio, order = (size / weights).sort(dim=1, descending=True)
    kept_size, kept_weight = size.gather(1, order), weights.gather(1, order)
    thresholds = ((kept_weight * kept_size).cumsum(1) - radius) / kept_weight.square().cumsum(1)
    # At radius 0 no entry passes its own threshold; the first one's threshold then removes everything.
    kept = (ratio > thresholds).sum(1, keepdim=True).clamp(min=1)
    theta = thresholds.gather(1, kept - 1).clamp(min=0)
    shrunk = (size - theta * weights).clamp(min=0)
    length = (weights * shrunk).sum(1, keepdim=True)
    # The difference of large numbers may leave a rounding error outside.
    return shrunk * (radius / length.where(length > 0, 1)).clamp(max=1) * v.sign()


def weighted_by_ascent(norm: Norm, v: Tensor, weights: Tensor, radius: float | Tensor) -> Tensor:
    """The nearest z with ‖weights·z‖ ≤ radius, from the projection of the norm without weights.

    Accelerated projected descent (Nesterov) in u = weights·z, until the duality gap, which bounds ‖z − z*‖²/2, is
    down to rounding.
    """
    wide = v.double()
    weights, limit = weights.to(wide).expand_as(wide[0]), per_image(radius, wide).flatten().expand(len(v))
    if bool((weights == weights.flatten()[0]).all()):
        constant = weights.flatten()[0]
        return norm.project(v, limit / constant).to(v.dtype)
    least, most = weights.min(), weights.max()
    momentum = float((most - least) / (most + least))
    size = sum_of_absolutes(wide).clamp(min=1e-300)
    u = before = norm.project(weights * wide, limit)
    for _ in range(_DESCENT):
        ahead = u + momentum * (u - before)
        before, u = u, norm.project(ahead + least.square() * (wide - ahead / weights) / weights, limit)
        z = u / weights
        gap = limit * norm.dual_norm((wide - z) / weights) - inner(wide - z, z)
        if bool((gap.abs() <= 1e-14 * size.square()).all()):
            break
    return (u / weights).to(v.dtype)
