"""Adversarial images for training on: gradient ascent inside a ball."""

import torch
from torch import Tensor

from gradreg.norms import Radius, Threat, per_image
from gradreg.passes import Calls, RandomState


def ascend(
    calls: Calls,
    x: Tensor,
    y: Tensor,
    geometry: Threat,
    *,
    radius: Radius,
    step: float,
    steps: int,
    start: Tensor | None = None,
    clip: bool = True,
) -> Tensor:
    """`steps` of steepest ascent of the loss, each projected to the ball around x and, if `clip`, to [0, 1].

    No weight gets a gradient, running statistics are not touched, and every pass sees the dropout masks that the next
    training pass will see; the random streams stand afterwards where they stood.
    """
    random = RandomState.now(x.device)
    delta = torch.zeros_like(x) if start is None else start
    for _ in range(steps):
        delta = geometry.project(delta + step * _direction(calls, x + delta, y, geometry, random), radius)
        if clip:
            delta = (x + delta).clamp(0, 1) - x
    return (x + delta).detach()


def single_step(calls: Calls, x: Tensor, y: Tensor, geometry: Threat, *, step: Radius, clip: bool) -> Tensor:
    """One step of steepest ascent from x, projected to nothing but the box."""
    direction = _direction(calls, x, y, geometry, RandomState.now(x.device))
    moved = x + per_image(step, x) * direction
    return moved.clamp(0, 1) if clip else moved


def _direction(calls: Calls, x: Tensor, y: Tensor, geometry: Threat, random: RandomState) -> Tensor:
    with torch.enable_grad(), random.replayed():
        gradient = calls.record(x, y, track=False).input_gradient(differentiable=False)
    return geometry.ascent(gradient)
