"""What a penalty step returns: the loss to minimise, and values to log."""

from dataclasses import dataclass
from types import EllipsisType

import torch
from torch import Tensor

from gradreg.display.numbers import significant
from gradreg.display.summary import Shown, Summary, images, spread
from gradreg.penalty.ahead import Ahead
from gradreg.penalty.graphs import leaves


@dataclass(frozen=True, repr=False)
class RegularizedLoss(Shown):
    """What a step minimises, `loss = clean + penalty`, and values to log; all but `loss` are detached."""

    loss: Tensor
    clean: Tensor
    penalty: Tensor
    logits: Tensor
    grad_norm: Tensor
    """‖∇ℓ(x)‖_* per image, by autograd; NaN where this step did not compute it (lazy, fraction)."""
    slope: Tensor
    """The same norm by the difference, in the same units: they differ by at most ω(h)/h, the loss's curvature.

    `scale="paper"` penalises it over √N for "linf"."""
    output_change: Tensor | None = None
    """Mean squared change of the logits from x to x + hd per image, with `output_slope`; None without."""
    first_slope: Tensor | None = None
    """The slope of the first step, with `second_step`; None without. `slope` is then that of the last one."""
    omega: Tensor | None = None
    """4·|ℓ(x + hd/2) − (ℓ(x) + ℓ(x + hd))/2|/h per image, a lower limit of ω(h/2), in steps that look; or None."""
    _input: Tensor | None = None
    _ahead: Ahead | None = None
    _index: Tensor | EllipsisType = ...
    _aligned: bool = False

    @property
    def alignment(self) -> Tensor | None:
        """Cosine of the angle between ∇ℓ(x) and ∇ℓ(x + hd) per image, with `alignment`, after the backward of the loss.

        NaN where this step did not compute it, or a gradient is zero; None without the option.
        """
        if not self._aligned:
            return None
        found = torch.full_like(self.grad_norm, torch.nan)
        if self._ahead is not None:
            found[self._index] = self._ahead.cosine().to(found.dtype)
        return found

    def summary(self) -> Summary:
        """The parts of the loss, and the gradient's norm both ways."""
        loss, clean, penalty = (significant(float(part.detach())) for part in (self.loss, self.clean, self.penalty))
        return Summary(
            f"RegularizedLoss: {loss} = clean {clean} + penalty {penalty}, {images(len(self.grad_norm))}",
            [("gradient norm", spread(self.grad_norm)), ("by difference", spread(self.slope))],
        )

    def backward(self) -> None:
        """As `loss.backward()`, without a gradient for the images where a graph leads to them (graphs=2)."""
        torch.autograd.backward(self.loss, inputs=leaves(self.loss, self._input))
