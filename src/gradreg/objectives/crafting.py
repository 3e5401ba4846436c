"""Adversarial images to train on: projected gradient ascent."""

import torch
from torch import Tensor

from gradreg.calling.state import Moment
from gradreg.calling.targets import Target, at, labels_in
from gradreg.errors import ConfigError
from gradreg.norms import Radius, Threat, per_image
from gradreg.penalty.passes import Calls


def ascend(
    calls: Calls,
    x: Tensor,
    y: Target,
    geometry: Threat,
    *,
    radius: Radius,
    step: float,
    steps: int,
    start: Tensor | None = None,
    clip: bool = True,
) -> Tensor:
    """`steps` of steepest ascent of the loss, each projected to the ball around x and, if `clip`, to [0, 1].

    No weight gets a gradient, nothing that the model keeps changes, and every pass uses the dropout masks of the next
    training pass; the global random streams are left as they were.
    """
    begun = calls.state.now(x.device)
    delta = torch.zeros_like(x) if start is None else start
    for _ in range(steps):
        gradient = gradient_at(calls, x + delta, y, begun)
        delta = _advance(x, delta, gradient, geometry, radius=radius, step=step, clip=clip)
    return (x + delta).detach()


def ascend_until_wrong(
    calls: Calls,
    x: Tensor,
    y: Target,
    geometry: Threat,
    *,
    radius: float,
    step: float,
    steps: int,
    start: Tensor | None = None,
    clip: bool = True,
) -> Tensor:
    """As `ascend`, but an image stops moving once it is misclassified, and later passes leave it out.

    That is friendly adversarial training (Zhang et al. 2020) with no steps after the first success. Images must not
    interact. A smaller batch would draw other dropout masks, so a model that draws any is given all images every time.
    """
    begun = calls.state.now(x.device)
    delta = torch.zeros_like(x) if start is None else start.clone()
    rows = torch.arange(len(x), device=x.device)
    for _ in range(steps):
        with torch.enable_grad(), begun.replayed():
            recorded = calls.record((x + delta)[rows], at(y, rows))
            draws = begun.random.moved()
        labels = labels_in(recorded.y, recorded.logits)
        if labels is None:
            raise ConfigError("stop_early needs labels, to see which images are misclassified: leave it out.")
        right = recorded.logits.argmax(1) == labels
        moving = rows[right]
        if len(moving) == 0:
            break
        gradient = recorded.input_gradient(differentiable=False, retain=False)[right]
        delta[moving] = _advance(x[moving], delta[moving], gradient, geometry, radius=radius, step=step, clip=clip)
        rows = rows if draws else moving
    return (x + delta).detach()


def single_step(calls: Calls, x: Tensor, y: Target, geometry: Threat, *, step: Radius, clip: bool) -> Tensor:
    """One step of steepest ascent from x, clipped to the box if `clip` but not projected to a ball."""
    direction = geometry.ascent(gradient_at(calls, x, y, calls.state.now(x.device)))
    moved = x + per_image(step, x) * direction
    return moved.clamp(0, 1) if clip else moved


def gradient_at(calls: Calls, x: Tensor, y: Target, begun: Moment) -> Tensor:
    """∇ℓ(x) by a pass as from that moment, which moves nothing."""
    with torch.enable_grad(), begun.replayed():
        return calls.record(x, y).input_gradient(differentiable=False, retain=False)


def _advance(
    x: Tensor, delta: Tensor, gradient: Tensor, geometry: Threat, *, radius: Radius, step: float, clip: bool
) -> Tensor:
    """One step of steepest ascent from x + delta, back into the ball and the box."""
    delta = geometry.retract(delta + step * geometry.climb(gradient), radius)
    return (x + delta).clamp(0, 1) - x if clip else delta
