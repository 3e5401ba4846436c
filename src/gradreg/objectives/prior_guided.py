"""Single-step training from a prior, with answers kept together: one perturbation for all images, learnt on the way."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Below1, NotNegative, Positive
from gradreg.norms import Threat, ThreatName, threat
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Outcome, ball
from gradreg.objectives.consistency import one_step


@dataclass(frozen=True)
class PriorGuided:
    """ℓ(z) + weight·mean((f(z) − f(u))²): u begins at a universal perturbation, z is one step from it, projected.

    Prior-guided initialisation with its consistency term (FGSM-PGI, Jia et al. 2022), with the universal prior of
    FGSM-UAP (Pan et al. 2024) in the place of a memory of each image's last perturbation. That memory would be twice as
    large as the data set, and does not fit images that are cropped and flipped anew. The prior v lies within
    `reach`·eps, and is projected to eps where it is used. After each step v moves by its radius along the momentum
    m ← ḡ/Σ|g| + decay·m of the batch's mean gradient. The defaults are the authors' for CIFAR-10 at 8/255.
    """

    threat: ThreatName | Threat = "linf"
    eps: NotNegative = 8 / 255
    weight: NotNegative = 10.0
    reach: Positive = 1.25
    decay: Below1 = 0.3
    step_size: Positive | None = None
    clip: bool = True
    ramp_epochs: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        threat(self.threat)

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        geometry, ramp = threat(self.threat), at.ramp(self.ramp_epochs)
        radius, step = self.eps * ramp, (self.step_size or self.eps) * ramp
        prior = self._prior(x, at, geometry)
        start = x + geometry.retract(prior, radius)
        ends = one_step(model, x, start, y, at, geometry, step=step, radius=radius, clip=self.clip)
        at.memory["prior_gradient"] += ends.gradient.mean(0, keepdim=True)
        at.memory["prior_total"] += ends.gradient.abs().sum()
        apart = (ends.logits - ends.start).square().mean()
        scalars = {"adversarial_loss": ends.losses.detach().mean(), "consistency": apart.detach()}
        return Outcome(ends.losses.mean() + self.weight * apart, ends.logits.detach(), scalars)

    def describe(self) -> str:
        return (
            f"on images moved by one step from a universal perturbation within {ball(self.threat, self.eps)}, plus "
            f"{self.weight:g} times the squared change of the outputs (FGSM-UAP)"
        )

    def _prior(self, x: Tensor, at: Moment, geometry: Threat) -> Tensor:
        """The perturbation of all images; at the beginning, or for images of another size, a corner of its ball."""
        kept = at.memory
        if "prior" not in kept or kept["prior"].shape[1:] != x.shape[1:]:
            noise = at.draws.joint_sample("prior", x, lambda like, source: like.uniform_(-1, 1, generator=source))
            kept["prior"] = self.reach * self.eps * geometry.ascent(noise)
            kept["prior_momentum"] = torch.zeros_like(noise)
            _clear(kept, at.step)
        elif int(kept["prior_step"]) != at.step:
            self._learn(kept, geometry)
            _clear(kept, at.step)
        return kept["prior"]

    def _learn(self, kept: dict[str, Tensor], geometry: Threat) -> None:
        """By the step before: only now all of its micro-batches and processes have given their part."""
        total, length = kept["prior_total"], self.reach * self.eps
        mean = kept["prior_gradient"] / total.where(total > 0, 1)
        kept["prior_momentum"] = mean + self.decay * kept["prior_momentum"]
        kept["prior"] = geometry.retract(kept["prior"] + length * geometry.ascent(kept["prior_momentum"]), length)


def _clear(kept: dict[str, Tensor], step: int) -> None:
    kept["prior_gradient"], kept["prior_total"] = torch.zeros_like(kept["prior"]), kept["prior"].new_zeros(())
    kept["prior_step"] = torch.tensor(step, device="cpu")
