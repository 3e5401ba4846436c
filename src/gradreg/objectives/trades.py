"""TRADES (Zhang et al. 2019): the clean loss plus the divergence between clean and adversarial predictions."""

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, NotNegative, Positive, Range
from gradreg.norms import Threat, ThreatName, threat
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Outcome, ball, without_wrapper
from gradreg.objectives.crafting import ascend
from gradreg.penalty.passes import BatchNormMode, Calls
from gradreg.precision import at_least_single

# At the image itself the divergence is 0 and so is its gradient: ascent has to start beside it.
_START = 1e-3


@dataclass(frozen=True)
class Trades:
    """ℓ(x) + beta·KL(p(x) ‖ p(x′)), with x′ the point of the ball where the divergence is largest.

    As its authors do, x′ is crafted with frozen batch normalisation, and clean and crafted images each pass through the
    network in a batch of their own.
    """

    threat: ThreatName | Threat = "linf"
    eps: NotNegative = 8 / 255
    beta: Annotated[float, Range(least=0, usual="the weight of the divergence")] = 6.0
    steps: Count = 10
    step_size: Positive | None = None
    clip: bool = True
    bn: BatchNormMode = "frozen"
    ramp_epochs: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        threat(self.threat)

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        geometry, radius = threat(self.threat), self.eps * at.ramp(self.ramp_epochs)
        step = (self.step_size or 2.5 * self.eps / self.steps) * at.ramp(self.ramp_epochs)
        logits = at.logits(model, x)
        calls = Calls(without_wrapper(model), divergence, self.bn, "keep", at.output)
        start = _START * at.draws.sample("start", x, lambda like, source: like.normal_(generator=source))
        start = geometry.retract(start, radius)
        target = logits.detach()
        worst = ascend(
            calls, x, target, geometry, radius=radius, step=step, steps=self.steps, start=start, clip=self.clip
        )
        clean = at.losses(logits, y).mean()
        apart = divergence(at.logits(model, worst), logits).mean()
        scalars = {"clean_loss": clean.detach(), "divergence": apart.detach()}
        return Outcome(clean + self.beta * apart, target, scalars)

    def describe(self) -> str:
        return (
            f"by TRADES: the loss plus {self.beta:g} times the divergence between the answers to an image and "
            f"to its worst neighbour within {ball(self.threat, self.eps)}"
        )


def divergence(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(p_reference ‖ p) per image, from the logits of both; always finite."""
    kind = at_least_single(logits.dtype)
    log_p, log_q = reference.to(kind).log_softmax(1), logits.to(kind).log_softmax(1)
    apart = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(1)
    return apart if apart.ndim == 1 else apart.flatten(1).mean(1)  # per pixel, where the logits are
