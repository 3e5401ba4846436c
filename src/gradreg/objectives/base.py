"""What the training loop knows of an objective: it turns a batch into a loss, and may depend on the moment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gradreg.losses import cross_entropy
from gradreg.penalty.passes import Criterion
from gradreg.precision import at_least_single
from gradreg.randomness import generator

Sampler = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Draws:
    """Random numbers for one step, a pure function of `key`: a resumed run draws what the first one would have.

    They are drawn for all images of the step and cut to the `share` at hand, so an image gets the same ones however
    many processes or micro-batches the step is spread over.
    """

    key: tuple[int, ...]
    joint: int
    share: slice

    def sample(self, stream: str, like: Tensor, sampler: Sampler) -> Tensor:
        """What `sampler` makes of a batch shaped as `like`, image for image."""
        whole = like.new_empty(self.joint, *like.shape[1:])
        source = torch.Generator(like.device).manual_seed(generator(stream, *self.key).initial_seed())
        return sampler(whole, source)[self.share]

    def number(self, stream: str) -> float:
        """One number for the step, uniform in [-1, 1), the same in every process."""
        return 2 * torch.rand((), generator=generator(stream, *self.key)).item() - 1


@dataclass(frozen=True)
class Moment:
    """Where training stands when a step is taken."""

    step: int
    epoch: float
    """Epochs done, with the fraction."""
    draws: Draws
    criterion: Criterion = cross_entropy

    def ramp(self, epochs: float) -> float:
        """From 0 at the start to 1 after that many epochs, linearly in the steps."""
        return min(1.0, self.epoch / epochs) if epochs > 0 else 1.0


@dataclass(frozen=True)
class Outcome:
    """What a step minimises, the detached logits it saw, and means worth logging (NaN: not measured this time)."""

    loss: Tensor
    logits: Tensor
    scalars: Mapping[str, Tensor] = field(default_factory=dict)
    finish: Callable[[], None] | None = None

    def backward(self) -> None:
        """The gradients of `loss`, by the shortest way that the objective knows."""
        if self.finish is None:
            self.loss.backward()
        else:
            self.finish()


class Objective(Protocol):
    """A batch in, a loss and logged scalars out. Objectives are frozen dataclasses: their fields are the recipe's."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome: ...


def without_wrapper(model: nn.Module) -> nn.Module:
    """The module that crafting calls: it leaves no gradient, so there is nothing to exchange between processes."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def smoothed_cross_entropy(smoothing: float) -> Criterion:
    """Cross entropy of each image with that much of the label spread evenly over all classes."""
    if smoothing == 0:
        return cross_entropy

    def criterion(logits: Tensor, y: Tensor) -> Tensor:
        logits = logits.to(at_least_single(logits.dtype))
        return F.cross_entropy(logits, y, reduction="none", label_smoothing=smoothing)

    return criterion
