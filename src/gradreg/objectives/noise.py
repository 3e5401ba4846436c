"""Gaussian noise augmentation, the training that randomized smoothing needs (Cohen et al. 2019)."""

from dataclasses import dataclass, field

from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import NotNegative, require, shown
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Objective, Outcome, describe
from gradreg.objectives.undefended import Undefended


def _kinds() -> dict[str, type]:
    from gradreg.objectives import OBJECTIVES

    return OBJECTIVES


@dataclass(frozen=True)
class Noise:
    """Another objective (default: standard training) on images with Gaussian noise of deviation `sigma`, not clipped.

    `Noise(0.25, Gradient(eps=0.5))` makes the loss flat around noisy images, which enlarges certified radii.
    """

    sigma: NotNegative = 0.25
    inner: Objective = field(default=Undefended(), metadata={"kinds": _kinds})

    def __post_init__(self) -> None:
        check_fields(self)
        require(callable(self.inner), f"inner must be an objective, as Undefended(); got {shown(self.inner)}.")

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        noise = at.draws.sample("noise", x, lambda like, source: like.normal_(generator=source))
        return self.inner(model, x + self.sigma * noise, y, at)

    def describe(self) -> str:
        return f"on images with Gaussian noise of σ = {self.sigma:g}, {describe(self.inner)}"
