"""Adversarial training with single steps: as cheap as the gradient penalty, but prone to catastrophic overfitting."""

from dataclasses import dataclass

from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import NotNegative, Positive
from gradreg.norms import Threat, ThreatName, threat
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Outcome, ball
from gradreg.objectives.crafting import ascend, single_step
from gradreg.penalty.passes import BatchNormMode


@dataclass(frozen=True)
class _SingleStep:
    threat: ThreatName | Threat = "linf"
    eps: NotNegative = 8 / 255
    step_size: Positive | None = None
    clip: bool = True
    bn: BatchNormMode = "train"
    ramp_epochs: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        threat(self.threat)


@dataclass(frozen=True)
class RandomStartStep(_SingleStep):
    """FGSM-RS (Wong et al. 2020): a random point of the ball, one step of 1.25 radii, projected back to the ball."""

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        geometry, ramp = threat(self.threat), at.ramp(self.ramp_epochs)
        radius, step = self.eps * ramp, (self.step_size or 1.25 * self.eps) * ramp
        start = at.draws.sample("start", x, lambda like, source: geometry.sample(like, radius, source))
        calls = at.calls(model, self.bn)
        moved = ascend(calls, x, y, geometry, radius=radius, step=step, steps=1, start=start, clip=self.clip)
        logits = at.logits(model, moved)
        return Outcome(at.losses(logits, y).mean(), logits.detach())

    def describe(self) -> str:
        return f"on images moved by one step from a random start within {ball(self.threat, self.eps)} (FGSM-RS)"


@dataclass(frozen=True)
class NoisyStep(_SingleStep):
    """N-FGSM (de Jorge et al. 2022): noise of `noise` radii, then one step of one radius, without projection.

    The stronger noise and the missing projection prevent catastrophic overfitting.
    """

    noise: NotNegative = 2.0

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        geometry, ramp = threat(self.threat), at.ramp(self.ramp_epochs)
        radius, step = self.noise * self.eps * ramp, (self.step_size or self.eps) * ramp
        noisy = x + at.draws.sample("start", x, lambda like, source: geometry.sample(like, radius, source))
        calls = at.calls(model, self.bn)
        logits = at.logits(model, single_step(calls, noisy, y, geometry, step=step, clip=self.clip))
        return Outcome(at.losses(logits, y).mean(), logits.detach())

    def describe(self) -> str:
        return f"on noisy images moved by one step of the radius of {ball(self.threat, self.eps)} (N-FGSM)"
