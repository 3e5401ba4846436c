"""A residual network for robust CIFAR training that still trains on a CPU: 102 million multiply-adds for a 32x32 image.

Five times the arithmetic of `compact` for two and a half times its parameters: most of it at half resolution, where
robust networks gain most from depth. Shortcuts are never interrupted inside of a stage; between stages an averaged
convolution halves the resolution, which has no kinks and aliases little.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from gradreg.checks.scalars import check_integer
from gradreg.errors import ModelError
from gradreg.models.activations import activation as activation_named
from gradreg.models.averaged import AveragedConv2d
from gradreg.models.normalize import Statistics, first_layer

_BLOCKS = (2, 2, 1)
"""Residual blocks of each stage."""


def residual(
    *,
    classes: int,
    channels: int = 3,
    activation: str = "gelu",
    width: int = 64,
    mean: Statistics | None = None,
    std: Statistics | None = None,
) -> nn.Module:
    """Stages of `width`, 2 `width` and 2 `width` channels at a half, a quarter and an eighth of the resolution.

    For images of 16x16 or more. The stem has half the width of the first stage, so `width` is even.
    """
    width = check_integer("width", width, least=2, most=10_000, error=ModelError)
    if width % 2:
        raise ModelError(f"width must be even, since the stem has half of it; got {width}.")
    act = activation_named(activation)
    widths = (width // 2, width, 2 * width, 2 * width)
    layers: dict[str, nn.Module] = {
        "normalize": first_layer(mean, std, channels),
        "stem": nn.Conv2d(channels, widths[0], 3, padding=1, bias=False),
    }
    for stage, ((inputs, outputs), blocks) in enumerate(zip(pairwise(widths), _BLOCKS, strict=True), start=1):
        layers[f"down{stage}"] = nn.Sequential(nn.BatchNorm2d(inputs), act(), AveragedConv2d(inputs, outputs))
        layers[f"stage{stage}"] = nn.Sequential(*(PreActivationBlock(outputs, act) for _ in range(blocks)))
    layers["last"] = nn.Sequential(nn.BatchNorm2d(widths[-1]), act())
    layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "head": nn.Linear(widths[-1], classes)}
    return nn.Sequential(OrderedDict(layers))


class PreActivationBlock(nn.Module):
    """Two 3x3 convolutions, each behind its BatchNorm and activation, added to their input (He et al. 2016)."""

    def __init__(self, width: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.BatchNorm2d(width),
            act(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            act(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The input plus the residual."""
        out: Tensor = x + self.residual(x)
        return out
