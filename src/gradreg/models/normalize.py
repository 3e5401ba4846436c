"""Normalisation as the first layer, so that pixels, gradients and distances all stay in [0, 1] units outside."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gradreg.checks.scalars import check_numbers
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
            raise ModelError(f"std must be positive for every channel; got {std}.")
        if len({len(means), len(stds)} - {1}) > 1:
            raise ModelError(f"mean and std must have the same number of values; got {len(means)} and {len(stds)}.")
        self.register_buffer("mean", means.to(torch.get_default_device()))
        self.register_buffer("std", stds.to(torch.get_default_device()))

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels of images [N, C, H, W]; grey ones are not spread over the channels of coloured ones."""
        channels = max(len(self.mean), len(self.std))
        if pixels.ndim > 1 and pixels.shape[1] != channels > 1:
            grey = f": repeat grey ones, x.expand(-1, {channels}, -1, -1)" if pixels.shape[1] == 1 else ""
            raise ModelError(f"Expected images of shape (N, {channels}, H, W); got {tuple(pixels.shape)}{grey}.")
        return (pixels - self.mean) / self.std

    def extra_repr(self) -> str:
        """The numbers, as `print(model)` shows them."""
        if self.mean.is_meta:
            return "on the meta device"
        mean, std = ([round(v, 6) for v in column.flatten().tolist()] for column in (self.mean, self.std))
        return f"mean={mean}, std={std}"


def first_layer(mean: Statistics | None, std: Statistics | None, channels: int) -> nn.Module:
    """The first layer of the built-in models: the identity if both are None, which is how the authors trained."""
    if mean is None and std is None:
        return nn.Identity()
    if mean is None or std is None:
        missing = "mean" if mean is None else "std"
        raise ModelError(f"Pass both mean and std, or neither for raw [0, 1] pixels; {missing} is missing.")
    layer = Normalize(mean, std)
    for name, values in (("mean", layer.mean), ("std", layer.std)):
        if len(values) not in (1, channels):
            raise ModelError(f"{name} must have 1 value or one per channel, channels={channels}; got {len(values)}.")
    return layer


def _column(name: str, values: Statistics) -> Tensor:
    """Numbers as a [C, 1, 1] tensor, which broadcasts over images; on the CPU, where they can be looked at."""
    return torch.tensor(check_numbers(name, values, error=ModelError), device="cpu").reshape(-1, 1, 1)
