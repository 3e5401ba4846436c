"""Standard training, the baseline of the other objectives."""

from dataclasses import dataclass

from torch import Tensor, nn

from gradreg.objectives.base import Moment, Outcome


@dataclass(frozen=True)
class Undefended:
    """The mean loss of the clean images."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
        logits = model(x)
        return Outcome(at.criterion(logits, y).mean(), logits.detach())

    def describe(self) -> str:
        return "on the loss of the images as they are, without a defence"
