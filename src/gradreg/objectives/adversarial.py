"""Adversarial training by projected gradient ascent (Madry et al. 2018), and as the paper's authors ran it."""

from dataclasses import dataclass

from torch import Tensor, nn

from gradreg.errors import require
from gradreg.norms import ThreatName, threat
from gradreg.objectives.base import Moment, Outcome, without_wrapper
from gradreg.objectives.crafting import ascend, ascend_until_wrong
from gradreg.penalty.passes import BatchNormMode, Calls, check_batch_norm_mode


@dataclass(frozen=True)
class Adversarial:
    """The mean loss of the worst images that `steps` of ascent find within `eps`; the clean ones are not seen.

    The defaults are Madry's: a random start, images clipped to the box, 2.5·eps/steps a step. The authors of the paper
    start at the image and do not clip: eps = 0.0314, steps = 7, step_size = 0.43/√3072 = 0.007758, random_start =
    false, clip = false. (They also update running statistics in every crafting pass; here the batch trained on does.)
    `bn` is the mode of batch normalisation while crafting; "frozen" usually costs robustness and buys clean accuracy.
    With `stop_early` the search for an image ends when it is misclassified (friendly adversarial training, Zhang et al.
    2020), and the image drops out of the passes that follow: cheaper, and milder than Madry's, who climbs to the end.
    """

    threat: ThreatName = "linf"
    eps: float = 8 / 255
    steps: int = 7
    step_size: float | None = None
    random_start: bool = True
    clip: bool = True
    bn: BatchNormMode = "train"
    ramp_epochs: float = 0.0
    stop_early: bool = False

    def __post_init__(self) -> None:
        check_crafting(self.threat, self.eps, self.steps, self.step_size, self.bn)
        require(
            not self.stop_early or self.bn == "frozen",
            "stop_early = true drops images from the batch, but with batch statistics an image's loss depends on the "
            "others: set bn = 'frozen' too.",
        )

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
        geometry, radius = threat(self.threat), self.eps * at.ramp(self.ramp_epochs)
        step = (self.step_size or 2.5 * self.eps / self.steps) * at.ramp(self.ramp_epochs)
        start = None
        if self.random_start:
            start = at.draws.sample("start", x, lambda like, source: geometry.sample(like, radius, source))
            start = (x + start).clamp(0, 1) - x if self.clip else start
        calls = Calls(without_wrapper(model), at.criterion, self.bn, "keep")
        search = ascend_until_wrong if self.stop_early else ascend
        worst = search(calls, x, y, geometry, radius=radius, step=step, steps=self.steps, start=start, clip=self.clip)
        logits = model(worst)
        return Outcome(at.criterion(logits, y).mean(), logits.detach())


def check_crafting(name: ThreatName, eps: float, steps: int, step_size: float | None, bn: BatchNormMode) -> None:
    """Refuse an attack that could not be carried out."""
    threat(name)
    require(eps >= 0, f"eps is {eps}, but the radius of an attack is a number ≥ 0, in pixel units.")
    require(steps >= 1, f"steps is {steps}, but an attack takes at least one step.")
    require(step_size is None or step_size > 0, f"step_size is {step_size}, but a step has a positive length.")
    check_batch_norm_mode(nn.Identity(), bn)
