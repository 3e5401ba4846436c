"""The interface of an objective: it turns a batch into a loss, and may depend on how far training has come."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gradreg.calling.answers import Output, answer, check_logits
from gradreg.calling.targets import Target, check_losses
from gradreg.checks.objects import check_function
from gradreg.config.fractions import radius_name
from gradreg.defaults import callers_default
from gradreg.losses import cross_entropy
from gradreg.norms import Threat, ThreatName, threat
from gradreg.penalty.passes import BatchNormMode, Calls, Criterion, needs_classes
from gradreg.randomness import generator

_Sampler = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Draws:
    """Random numbers for one step, a pure function of `key`: a resumed run draws what an uninterrupted one would have.

    They are drawn for all images of the step and cut to this process's `share`, so an image gets the same ones however
    many processes or micro-batches the step is spread over.
    """

    key: tuple[int, ...]
    joint: int
    share: slice

    def sample(self, stream: str, like: Tensor, sampler: _Sampler) -> Tensor:
        """What `sampler` draws for a batch shaped as `like`, per image."""
        whole = like.new_empty(self.joint, *like.shape[1:])
        source = torch.Generator(like.device).manual_seed(generator(stream, *self.key).initial_seed())
        return sampler(whole, source)[self.share]

    def joint_sample(self, stream: str, like: Tensor, sampler: _Sampler) -> Tensor:
        """One draw shaped as an image of `like`, with a batch axis of 1: the same in every process and micro-batch."""
        return Draws(self.key, 1, slice(1)).sample(stream, like, sampler)

    def number(self, stream: str) -> float:
        """One number for the step, uniform in [-1, 1), the same in every process."""
        return 2 * torch.rand((), generator=generator(stream, *self.key), device="cpu").item() - 1


@dataclass(frozen=True)
class Moment:
    """How far training has come when a step is taken."""

    step: int
    epoch: float
    """Epochs completed, as a fraction: 1.5 is halfway through the second."""
    draws: Draws
    criterion: Criterion = cross_entropy
    output: Output | None = None
    """From what the model returns to logits, where that is neither a tensor nor has logits."""
    memory: dict[str, Tensor] = field(default_factory=dict)
    """What an objective keeps from one step for the next: a part of checkpoints, averaged over processes.

    Names that begin with "own" are of one process: they are not averaged, and saved where there is one process only.
    """

    def logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """What the model says of the images."""
        return answer(model, x, self.output)

    def losses(self, logits: Tensor, y: Target) -> Tensor:
        """One loss per image."""
        if needs_classes(self.criterion, y):
            check_logits(logits, len(logits) if logits.ndim else 0)
        with callers_default():
            losses = self.criterion(logits, y)
        return check_losses(losses, len(logits))

    def calls(self, model: nn.Module, bn: BatchNormMode) -> Calls:
        """The model and the criterion as attacks of a training step call them."""
        return Calls(without_wrapper(model), self.criterion, bn, "keep", self.output)

    def ramp(self, epochs: float) -> float:
        """From 0 at the start to 1 after that many epochs, linearly in the steps."""
        return min(1.0, self.epoch / epochs) if epochs > 0 else 1.0


@dataclass(frozen=True)
class Outcome:
    """The loss of a step, its detached logits, and batch means to log (NaN: not measured in this step).

    `finish` replaces `loss.backward()` where the objective has a cheaper way to the same gradients.
    """

    loss: Tensor
    logits: Tensor
    scalars: Mapping[str, Tensor] = field(default_factory=dict)
    finish: Callable[[], None] | None = None
    targets: Target | None = None
    """Those of the images that were trained on, where these are not the batch's."""

    def backward(self) -> None:
        """Compute the gradients of `loss`, the cheapest way that the objective has."""
        if self.finish is None:
            self.loss.backward()
        else:
            self.finish()


class Objective(Protocol):
    """From a batch to a loss and scalars to log. Objectives are frozen dataclasses; their fields are recipe settings.

    With a method `describe(self) -> str` an objective words its own entry in model cards, see `describe`.
    """

    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome: ...


@runtime_checkable
class _Describing(Protocol):
    def describe(self) -> str: ...


def describe(objective: Objective) -> str:
    """The objective and its strength, as the end of a sentence that begins with "trained"."""
    check_function("objective", objective)
    if isinstance(objective, _Describing):
        return objective.describe()
    return f"with the objective {type(objective).__name__}"


def ball(name: ThreatName | Threat, eps: float) -> str:
    """The set of allowed perturbations, as descriptions name it: l∞ 8/255."""
    return f"{threat(name).symbol} {radius_name(eps)}"


def without_wrapper(model: nn.Module) -> nn.Module:
    """The module that attacks call while training: they leave no weight gradients for processes to exchange."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def smoothed_cross_entropy(smoothing: float) -> Criterion:
    """Cross entropy per image, with that fraction of the label spread evenly over all classes."""
    return cast(Criterion, partial(cross_entropy, smoothing=smoothing)) if smoothing else cross_entropy
