"""Normalisation as the first layer, so that pixels, gradients and distances all stay in [0, 1] units outside."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gradreg.errors import ModelError

Statistics = float | Sequence[float]
"""One number for all channels, or one for each."""


class Normalize(nn.Module):
    """(pixels − mean) / std per channel; both are buffers, so a checkpoint carries them."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Statistics, std: Statistics) -> None:
        super().__init__()
        means, stds = _column("mean", mean), _column("std", std)
        if not bool((stds > 0).all()):
            raise ModelError(f"The std of every channel must be positive, but it is {std}.")
        if len({len(means), len(stds)} - {1}) > 1:
            raise ModelError(f"mean has {len(means)} values and std has {len(stds)}: give as many of each.")
        self.register_buffer("mean", means.to(torch.get_default_device()))
        self.register_buffer("std", stds.to(torch.get_default_device()))

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels of images [N, C, H, W]."""
        return (pixels - self.mean) / self.std

    def extra_repr(self) -> str:
        """The numbers, as `print(model)` shows them."""
        mean, std = ([round(v, 6) for v in column.flatten().tolist()] for column in (self.mean, self.std))
        return f"mean={mean}, std={std}"


def first_layer(mean: Statistics | None, std: Statistics | None, channels: int) -> nn.Module:
    """The layer that a model of ours opens with: nothing when both are None, which is how the authors trained."""
    if mean is None and std is None:
        return nn.Identity()
    if mean is None or std is None:
        missing, given = ("mean", "std") if mean is None else ("std", "mean")
        raise ModelError(f"{given} was given without {missing}: give both, or neither for raw [0, 1] pixels.")
    layer = Normalize(mean, std)
    for name, values in (("mean", layer.mean), ("std", layer.std)):
        if len(values) not in (1, channels):
            raise ModelError(f"{name} has {len(values)} values, but the images have channels={channels}.")
    return layer


def _column(name: str, values: Statistics) -> Tensor:
    """Numbers as a [C, 1, 1] tensor, which broadcasts over images; on the CPU, where they can be looked at."""
    try:
        column = torch.tensor(values, dtype=torch.float32, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise ModelError(f"{name} must be a number or a list of numbers, but it is {values!r}.") from None
    if column.dim() > 1 or column.numel() == 0 or not bool(column.isfinite().all()):
        raise ModelError(f"{name} must be a finite number or a list of one for each channel, but it is {values!r}.")
    return column.reshape(-1, 1, 1)
