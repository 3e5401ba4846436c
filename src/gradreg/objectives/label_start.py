"""Single-step training from a start that tells the label (LIET, Pan et al. 2025), with answers kept together."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Below1, Count, NotNegative, Range, require
from gradreg.checks.tensors import check_classes, on_host
from gradreg.errors import ConfigError
from gradreg.norms import threat
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Outcome, ball
from gradreg.objectives.consistency import one_step
from gradreg.objectives.crafting import gradient_at
from gradreg.precision import at_least_single

_Fraction = Annotated[float, Range(least=0, most=1)]


@dataclass(frozen=True)
class LabelStart:
    """ℓ(z) + weight·JS(p(u), p(z)), from a start u that carries information about the label; for l∞ only.

    Every `every` steps the signs of the gradient at a grey image are taken for each class. A batch starts at eps times
    those of its labels, or at the opposite, by a coin for the batch. A fraction of the pixels, drawn between
    `fresh_least` and `fresh_most` per batch, has uniform noise of `noise`·eps instead. One step of eps follows. Labels
    are smoothed by `smoothing`, spread over the other classes at random, and `weight` rises from 0 over
    `weight_epochs`: set that to the length of the run. The defaults are the authors' for CIFAR-10 at 8/255 and 100
    epochs; at 16/255 they have noise = 2, project = false, fresh pixels from 0 to 1, weight = 20, smoothing = 0.4 and
    every = 10.
    """

    eps: NotNegative = 8 / 255
    weight: NotNegative = 100.0
    weight_epochs: NotNegative = 100.0
    smoothing: Below1 = 0.6
    every: Count = 20
    noise: NotNegative = 1.0
    fresh_least: _Fraction = 0.1
    fresh_most: _Fraction = 0.5
    project: bool = True
    clip: bool = True
    ramp_epochs: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            self.fresh_least <= self.fresh_most,
            f"fresh_least must not exceed fresh_most = {self.fresh_most:g}; got {self.fresh_least:g}.",
        )

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        if not isinstance(y, Tensor) or y.ndim != 1 or y.is_floating_point():
            raise ConfigError(
                "label-start begins at a perturbation of each image's label: it needs one label per image."
            )
        radius, geometry = self.eps * at.ramp(self.ramp_epochs), threat("linf")
        signs, y = self._signs(model, x, at), y.long()  # bytes would index as a mask
        if on_host(y):
            check_classes(y, len(signs))
        start = x + radius * self._start(signs[y], x, at)
        targets = self._smoothed(y, len(signs), x, at)
        inside = radius if self.project else None
        ends = one_step(model, x, start, targets, at, geometry, step=radius, radius=inside, clip=self.clip)
        apart = jensen_shannon(ends.start, ends.logits).mean()
        scalars = {"adversarial_loss": ends.losses.detach().mean(), "consistency": apart.detach()}
        strength = self.weight * at.ramp(self.weight_epochs)
        return Outcome(ends.losses.mean() + strength * apart, ends.logits.detach(), scalars)

    def describe(self) -> str:
        return (
            f"on images moved by one step from a perturbation of their label within {ball('linf', self.eps)}, plus "
            f"up to {self.weight:g} times the Jensen-Shannon divergence of the answers at both ends (LIET)"
        )

    def _signs(self, model: nn.Module, x: Tensor, at: Moment) -> Tensor:
        """Of the gradient at a grey image, with running statistics, for each class; kept for `every` steps."""
        kept = at.memory.get("label_signs")
        if kept is not None and kept.shape[1:] == x.shape[1:] and at.step % self.every:
            return kept
        calls = at.calls(model, "frozen")
        begun, grey = calls.state.now(x.device), torch.full_like(x[:1], 0.5)
        with torch.no_grad(), begun.replayed():
            classes = calls.evaluate(grey, torch.zeros(1, dtype=torch.int64, device=x.device))[1].shape[1]
        labels = torch.arange(classes, device=x.device)
        gradient = gradient_at(calls, grey.repeat(classes, *[1] * (x.ndim - 1)), labels, begun)
        at.memory["label_signs"] = gradient.sign()
        return at.memory["label_signs"]

    def _start(self, signs: Tensor, x: Tensor, at: Moment) -> Tensor:
        """In units of the radius."""
        middle, half = (self.fresh_most + self.fresh_least) / 2, (self.fresh_most - self.fresh_least) / 2
        share = middle + half * at.draws.number("fresh share")
        fresh = at.draws.sample("fresh", x, lambda like, source: like.uniform_(generator=source)) < share
        noise = at.draws.sample("noise", x, lambda like, source: like.uniform_(-1, 1, generator=source))
        start = torch.where(fresh, self.noise * noise, signs)
        return start if at.draws.number("coin") < 0 else -start

    def _smoothed(self, y: Tensor, classes: int, x: Tensor, at: Moment) -> Tensor:
        """1 − s for the label, and s over the other classes in random parts; the labels themselves for s = 0."""
        if not self.smoothing:
            return y
        like = x.new_empty(len(y), classes)
        drawn = at.draws.sample("smoothing", like, lambda like, source: like.uniform_(generator=source))
        others = drawn.scatter(1, y[:, None], 0.0)
        parts = self.smoothing * others / others.sum(1, keepdim=True)
        return parts.scatter(1, y[:, None], 1 - self.smoothing)


def jensen_shannon(a: Tensor, b: Tensor) -> Tensor:
    """(KL(p ‖ m) + KL(q ‖ m))/2 per image, with m the mean of the probabilities p and q."""
    kind = at_least_single(a.dtype)
    log_p, log_q = a.to(kind).log_softmax(1), b.to(kind).log_softmax(1)
    log_m = torch.logaddexp(log_p, log_q) - torch.log(torch.tensor(2.0, dtype=kind, device=a.device))
    return ((log_p.exp() * (log_p - log_m)).sum(1) + (log_q.exp() * (log_q - log_m)).sum(1)) / 2
