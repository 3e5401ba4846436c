"""What training minimises and what picks its best epoch, where the user says so: criterion, output and score."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradreg.calling.answers import Output, answer
from gradreg.calling.targets import SOFT, Target, check_losses, labels_in
from gradreg.checks.scalars import shown
from gradreg.defaults import callers_default
from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy, misclassified
from gradreg.penalty.passes import Criterion

Score = Callable[[Tensor, Target], Tensor]
"""From logits and targets to a number from 0 to 1 per image; 1 is right."""


@dataclass(frozen=True)
class Measure:
    """A loss per image, logits of a model, and how right it is; by default cross entropy and whether it is right."""

    criterion: Criterion = cross_entropy
    output: Output | None = None
    score: Score | None = None

    def __post_init__(self) -> None:
        for name, value in (("criterion", self.criterion), ("output", self.output), ("score", self.score)):
            if value is not None and not callable(value):
                raise ConfigError(f"{name} must be a function; got {shown(value)}.")

    def logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """What the model says of the images."""
        return answer(model, x, self.output)

    def losses(self, logits: Tensor, y: Target) -> Tensor:
        """One loss per image."""
        with callers_default():
            losses = self.criterion(logits, y)
        return check_losses(losses, len(logits))

    def right(self, logits: Tensor, y: Target) -> Tensor:
        """How right each image is, from 0 to 1: the score, or 1 where the label is strictly ahead."""
        if self.score is not None:
            return self._scored(logits, y)
        labels = labels_in(y, logits)
        if labels is None:
            raise ConfigError(
                "The held-out targets are not labels, so nothing picks the best epoch: pass score=, a function from "
                "logits and targets to a number from 0 to 1 per image."
            )
        return (~misclassified(logits, labels)).float()

    def accuracy(self, logits: Tensor, y: Target) -> Tensor:
        """The mean over a training batch, without a look at it; NaN where targets are not labels and none scores."""
        if self.score is not None:
            return self._one_each(logits, y).float().mean()
        if isinstance(y, Tensor) and logits.ndim == 2 and y.ndim == 1 and not y.is_floating_point():
            return (logits.argmax(1) == y).float().mean()
        unknown = logits.new_full((), torch.nan, dtype=torch.float32)
        if not isinstance(y, Tensor) or y.shape != logits.shape or not y.is_floating_point():
            return unknown
        soft = ((y.sum(1) - 1).abs() < SOFT).all()
        return torch.where(soft, (logits.argmax(1) == y.argmax(1)).float().mean(), unknown)

    def _scored(self, logits: Tensor, y: Target) -> Tensor:
        found = self._one_each(logits, y)
        if not bool(((found >= 0) & (found <= 1)).all()):
            raise ConfigError("score must return numbers from 0 to 1; got some beyond.")
        return found.to(torch.float32)

    def _one_each(self, logits: Tensor, y: Target) -> Tensor:
        assert self.score is not None
        found = self.score(logits, y)
        if not isinstance(found, Tensor) or found.shape != (len(logits),):
            got = tuple(found.shape) if isinstance(found, Tensor) else shown(found)
            raise ConfigError(f"score must return one number per image, shape ({len(logits)},); got {got}.")
        return found.detach()
