"""The pass at the base point: the loss of the batch, and what of it the penalty is taken of."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import EllipsisType

import torch
from torch import Tensor

from gradreg.calling.state import Moment
from gradreg.calling.targets import Target, at
from gradreg.norms import Threat
from gradreg.penalty.graphs import Terms
from gradreg.penalty.passes import Calls, Pass


@dataclass(frozen=True)
class Base:
    """The batch at its base point: its mean loss, and the recorded pass of the images whose gradient is penalised."""

    loss: Tensor
    logits: Tensor
    part: Pass | None
    share: float = 0.0
    """The weight of the part's losses in `loss`."""
    index: Tensor | EllipsisType = ...


def pass_at_base(
    calls: Calls, begun: Moment, x: Tensor, y: Target, fraction: float, step: int | None, terms: Terms | None
) -> Base:
    """The part's own share of the loss is left to the penalty; with one graph at a time, the rest goes to `terms`."""
    size = len(x)
    count = min(size, max(1, round(fraction * size))) if fraction else 0
    if 0 < count < size:
        shuffled = torch.randperm(size, generator=torch.Generator().manual_seed(step or 0), device="cpu")
        shuffled = shuffled.to(x.device, non_blocking=True)
        count = _enough(calls, begun, x, y, shuffled, count)
    if count == 0:
        losses, logits = calls.evaluate(x, y)
        if terms and terms.wanted and calls.may_differ_later:
            terms.settle(losses, 1 / size)
            return Base(terms.loss(losses.detach().mean()), logits, None)
        return Base(losses.mean(), logits, None)
    if count == size:
        part = calls.record(x, y, begun)
        return Base(part.losses.mean(), part.logits, part, 1 / size)

    index, rest = shuffled[:count], shuffled[count:]
    if calls.images_interact:
        losses, logits = calls.evaluate(x, y)
        if terms:
            terms.settle(losses, 1 / size)
        # The difference needs both its losses under the statistics of the same images, so the part passes by itself.
        with begun.replayed():
            part = calls.record(x[index], at(y, index), begun)
        return Base(losses.mean(), logits, part, 0.0, index)
    part = calls.record(x[index], at(y, index), begun)
    # What a pass moves is moved once, by the part.
    with calls.state.replaced(begun):
        losses, logits = calls.evaluate(x[rest], at(y, rest))
    if terms:
        terms.leave(losses, 1 / size)
    in_order = torch.cat([part.logits, logits])[shuffled.argsort()]
    return Base((part.losses.sum() + losses.sum()) / size, in_order, part, 1 / size, index)


def _enough(calls: Calls, begun: Moment, x: Tensor, y: Target, shuffled: Tensor, count: int) -> int:
    """So many images, but two at least where images interact: one alone has no statistics."""
    two = max(2, count)
    rows = shuffled[:two]
    calls.try_interaction(begun, x[rows], at(y, rows))
    return two if calls.images_interact else count


@contextmanager
def moved_by(calls: Calls, begun: Moment, images: Tensor, y: Target) -> Iterator[None]:
    """Passes inside move nothing: running statistics and whatever else a pass moves are moved by these images."""
    with torch.no_grad():
        calls.evaluate(images, y)
    with begun.replayed():
        yield


def noisy(x: Tensor, noise: float | Tensor, geometry: Threat) -> Tensor:
    """x + n: n as it is given, or uniform in the ball of that radius, by torch's global stream as dropout draws."""
    if isinstance(noise, Tensor):
        return x + noise.to(x)
    source = torch.Generator(x.device).manual_seed(int(torch.randint(2**62, (), device="cpu")))
    return x + geometry.sample(x, noise, source)
