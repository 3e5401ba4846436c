"""Adversarial training with PGD (Madry et al. 2018), and as the paper's authors ran it."""

from dataclasses import dataclass

from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, NotNegative, Positive, require
from gradreg.norms import Threat, ThreatName, threat
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Outcome, ball
from gradreg.objectives.crafting import ascend, ascend_until_wrong
from gradreg.penalty.passes import BatchNormMode


@dataclass(frozen=True)
class Adversarial:
    """The mean loss of adversarial images: the worst that `steps` of PGD find within `eps`. Clean images are not used.

    The defaults are Madry's: a random start, images clipped to the box, steps of 2.5·eps/steps. The paper's authors
    start at the image and do not clip: eps = 0.0314, steps = 7, step_size = 0.43/√3072 = 0.007758, random_start =
    false, clip = false. (They also update running statistics in every attack pass; here only the training pass does.)
    `bn` is the mode of batch normalisation during the attack; "frozen" usually trades robustness for clean accuracy.
    With `stop_early` the search for an image ends when it is misclassified (friendly adversarial training, Zhang et al.
    2020), and the image drops out of the passes that follow: cheaper, and milder than Madry's, who climbs to the end.
    """

    threat: ThreatName | Threat = "linf"
    eps: NotNegative = 8 / 255
    steps: Count = 7
    step_size: Positive | None = None
    random_start: bool = True
    clip: bool = True
    bn: BatchNormMode = "train"
    ramp_epochs: NotNegative = 0.0
    stop_early: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        threat(self.threat)
        require(
            not self.stop_early or self.bn == "frozen",
            "stop_early = true drops images from the batch, and with batch statistics an image's loss depends on the "
            "others: set bn = 'frozen' too.",
        )

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        geometry, radius = threat(self.threat), self.eps * at.ramp(self.ramp_epochs)
        step = (self.step_size or 2.5 * self.eps / self.steps) * at.ramp(self.ramp_epochs)
        start = None
        if self.random_start:
            start = at.draws.sample("start", x, lambda like, source: geometry.sample(like, radius, source))
            start = (x + start).clamp(0, 1) - x if self.clip else start
        calls = at.calls(model, self.bn)
        search = ascend_until_wrong if self.stop_early else ascend
        worst = search(calls, x, y, geometry, radius=radius, step=step, steps=self.steps, start=start, clip=self.clip)
        logits = at.logits(model, worst)
        return Outcome(at.losses(logits, y).mean(), logits.detach())

    def describe(self) -> str:
        return f"on the worst images that {self.steps} steps of ascent find within {ball(self.threat, self.eps)}"
