"""Models that only look robust, made from an honest one: what a diagnosis must detect (Carlini et al. 2019, §4)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradreg.checks.calls import validated


class Masked(nn.Module):
    """A model with a function of the images before it and a function of the logits after it."""

    @validated
    def __init__(
        self,
        model: nn.Module,
        *,
        before: Callable[[Tensor], Tensor] | None = None,
        after: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.before, self.after = model, before, after
        self.training = model.training

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.before is None else self.before(x)
        logits: Tensor = self.model(x)
        return logits if self.after is None else self.after(logits)


class _Purified(nn.Module):
    """Purification: a few gradient steps on the image towards higher confidence, then the answer."""

    def __init__(self, model: nn.Module, steps: int = 2, size: float = 0.02) -> None:
        super().__init__()
        self.model, self.steps, self.size = model, steps, size
        self.training = model.training

    def forward(self, x: Tensor) -> Tensor:
        point = x
        for _ in range(self.steps):
            with torch.enable_grad():
                leaf = point.detach().requires_grad_()
                surest = self.model(leaf).log_softmax(1).amax(1).sum()
                point = point + self.size * torch.autograd.grad(surest, leaf)[0].sign()
        logits: Tensor = self.model(point.clamp(0, 1))
        return logits


@validated
def broken_models(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Masked versions of an honest model in eval mode, each with the code of the flag that it must raise."""
    return {
        "input quantised": (Masked(model, before=lambda x: (7 * x).round() / 7), "zero-gradient-margin"),
        "input thresholded": (Masked(model, before=lambda x: (x > 0.5).to(x.dtype)), "zero-gradient-margin"),
        "logits × 1e4": (Masked(model, after=lambda z: 1e4 * z), "zero-gradient-cross-entropy"),
        "temperature 1/100": (Masked(model, after=lambda z: 100 * z), "saturated-loss"),
        "temperature 1000": (Masked(model, after=lambda z: z / 1000), "closed-loss-gap"),
        "noise inside": (Masked(model, before=lambda x: x + 0.1 * torch.randn_like(x)), "randomised"),
        "probabilities": (Masked(model, after=lambda z: z.softmax(1)), "probabilities"),
        "ripple": (Masked(model, before=_rippled), "slope-mismatch"),
        "detached half": (Masked(model, before=lambda x: 0.5 * x + 0.5 * x.detach()), "slope-mismatch"),
        "optimises inside": (_Purified(model), "optimises-inside"),
        "not a number": (Masked(model, after=lambda z: (z - z.amax(1, keepdim=True)) / 0), "not-finite"),
    }


def _rippled(x: Tensor) -> Tensor:
    """Changes a pixel by at most 0.004 and its slope by up to 1.6."""
    return x + 0.004 * torch.sin(400 * x)
