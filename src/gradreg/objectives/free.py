"""Free adversarial training (Shafahi et al. 2019): one backward for the weights and for the images."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradreg.calling.answers import leaf
from gradreg.calling.targets import Target
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, NotNegative, Positive
from gradreg.errors import ConfigError
from gradreg.norms import Threat, ThreatName, threat
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Outcome, ball


@dataclass(frozen=True)
class Free:
    """The loss of perturbed images, whose perturbation takes a step with each update of the weights.

    A batch is trained on `replays` times in a row, so that in an epoch only every `replays`-th batch is seen: train
    `replays` times as many epochs for as many looks at the data. The perturbation stays from a batch to the next, as
    the authors have it. A step costs 3F, as plain training does, and the first layer's gradient at the images.
    """

    threat: ThreatName | Threat = "linf"
    eps: NotNegative = 8 / 255
    replays: Count = 8
    step_size: Positive | None = None
    clip: bool = True
    ramp_epochs: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        threat(self.threat)

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        if not isinstance(y, Tensor):
            raise ConfigError("free keeps a batch for several steps, and so needs targets that are one tensor.")
        geometry, ramp = threat(self.threat), at.ramp(self.ramp_epochs)
        radius, step = self.eps * ramp, (self.step_size or self.eps) * ramp
        kept, part = at.memory, at.draws.share.start or 0
        images, labels, noise = (f"own_{name}_{part}" for name in ("images", "labels", "perturbation"))
        if at.step % self.replays == 0 or images not in kept:
            kept[images], kept[labels] = x, y
        x, y = kept[images], kept[labels]
        delta = kept.get(noise)
        if delta is None or delta.shape != x.shape:
            delta = torch.zeros_like(x)
        delta = geometry.retract(delta, radius)
        point = leaf((x + delta).clamp(0, 1) if self.clip else x + delta)

        def climb(gradient: Tensor) -> None:
            kept[noise] = geometry.retract(delta + step * geometry.climb(gradient.detach()), radius)

        point.register_hook(climb)
        logits = at.logits(model, point)
        return Outcome(at.losses(logits, y).mean(), logits.detach(), targets=y)

    def describe(self) -> str:
        return f"on images perturbed within {ball(self.threat, self.eps)}, each batch {self.replays} times (Free)"
