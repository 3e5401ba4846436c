"""A moving average of the weights."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from gradreg.calling.copying import copy_of


class Average:
    """A second network whose weights follow the first one's: w̄ ← d·w̄ + (1 − d)·w after every step.

    Early on the decay is only (1 + t)/(10 + t), so that the random start is soon forgotten. Running statistics of
    normalisation follow in the same way: those of the first network are of activations that the averaged weights do
    not have, which costs accuracy while the learning rate is high. Other buffers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy_of(model, "ema").requires_grad_(False)
        self.decay = decay
        self.followed = {*_running_statistics(self.model)}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Follow `model` after its step number `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for mean, weight in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(weight, 1 - decay)
        for (name, kept), buffer in zip(self.model.named_buffers(), model.buffers(), strict=True):
            if name in self.followed:
                kept.lerp_(buffer, 1 - decay)
            else:
                kept.copy_(buffer)


def _running_statistics(model: nn.Module) -> Iterator[str]:
    """The names of their buffers; batch counters are whole numbers, which have no mean."""
    of_layers = {
        id(each)
        for layer in model.modules()
        if isinstance(layer, _NormBase)
        for each in (layer.running_mean, layer.running_var)
    }
    yield from (name for name, buffer in model.named_buffers() if id(buffer) in of_layers)
