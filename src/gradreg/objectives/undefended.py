"""Standard training, the baseline of the other objectives."""

from dataclasses import dataclass

from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Outcome


@dataclass(frozen=True)
class Undefended:
    """The mean loss of the clean images."""

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        logits = at.logits(model, x)
        return Outcome(at.losses(logits, y).mean(), logits.detach())

    def describe(self) -> str:
        return "on the loss of the images as they are, without a defence"
