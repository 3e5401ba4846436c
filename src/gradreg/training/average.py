"""A moving average of the weights."""

import torch
from torch import nn

from gradreg.calling.copying import copy_of


class Average:
    """A second network whose weights follow the first one's: w̄ ← d·w̄ + (1 − d)·w after every step.

    Early on the decay is only (1 + t)/(10 + t), so that the random start is soon forgotten. Buffers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy_of(model, "ema").requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Follow `model` after its step number `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for mean, weight in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(weight, 1 - decay)
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(buffer)
