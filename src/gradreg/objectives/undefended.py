"""Plain training, what the others are measured against."""

from dataclasses import dataclass

from torch import Tensor, nn

from gradreg.objectives.base import Moment, Outcome


@dataclass(frozen=True)
class Undefended:
    """The mean loss of the images as they are."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
        logits = model(x)
        return Outcome(at.criterion(logits, y).mean(), logits.detach())
