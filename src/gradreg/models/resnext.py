"""The paper's CIFAR network, which it calls ResNeXt-34 (2x32).

The name misleads: there is no bottleneck and no 1x1 aggregation. A block is a dense 3x3 convolution to twice the
channels and a grouped 3x3 convolution whose two groups are averaged. 3,892,298 parameters and 571.3 million
multiply-adds for a 32x32 image.
"""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradreg.models.activations import activation as activation_named
from gradreg.models.checks import unknown
from gradreg.models.normalize import Statistics, first_layer

_WIDTHS = (32, 64, 128)
_BLOCKS_PER_STAGE = 5
_HEADS = ("paper", "linear")


def resnext34_2x32(
    *,
    classes: int,
    channels: int = 3,
    activation: str = "relu",
    head: str = "paper",
    mean: Statistics | None = None,
    std: Statistics | None = None,
) -> nn.Module:
    """34 weight layers in three stages of five blocks at full, half and quarter resolution; no strided convolution.

    `head="paper"` batch-normalises the logits and passes them through the activation, which the paper does not mention.
    Each logit then has unit variance over a training batch (so a batch needs two images): ten balanced classes cannot
    reach a cross entropy below 0.278 nor a mean probability above 0.757, and the paper's gradient norms and gaps hold
    under that cap only. With ReLU, an image whose logits are all 0 has no gradient at all. `head="linear"` has neither
    trait and just as many parameters; its numbers do not compare with Tables 2 and 3.
    """
    if head not in _HEADS:
        raise unknown("head", head, _HEADS)
    act = activation_named(activation)
    layers: dict[str, nn.Module] = {
        "normalize": first_layer(mean, std, channels),
        "stem": _unit(channels, _WIDTHS[0], kernel=3, act=act),
    }
    for stage, width in enumerate(_WIDTHS, start=1):
        if stage > 1:
            # The 1x1 convolution runs at the higher resolution and the pooling follows it, as the authors have it.
            transition = _unit(width // 2, width, kernel=1, act=act)
            layers[f"transition{stage - 1}"] = transition.append(nn.AvgPool2d(2))
        layers[f"stage{stage}"] = nn.Sequential(*(BranchBlock(width, act) for _ in range(_BLOCKS_PER_STAGE)))
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["head"] = _paper_head(_WIDTHS[-1], classes, act) if head == "paper" else nn.Linear(_WIDTHS[-1], classes)
    return nn.Sequential(OrderedDict(layers))


class BranchBlock(nn.Module):
    """A residual block of two branches that share their first, dense convolution and are averaged after the second."""

    def __init__(self, width: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.branches = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            act(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2, bias=False),
            nn.BatchNorm2d(2 * width),
        )
        self.act = act()

    def forward(self, x: Tensor) -> Tensor:
        """The activation of the input plus the mean of the branches."""
        first, second = self.branches(x).chunk(2, dim=1)
        out: Tensor = self.act(x + (first + second) / 2)
        return out


class Bias(nn.Module):
    """A learned shift of each channel, drawn as the bias of a layer of that fan-in would be: U(±1/√fan_in)."""

    def __init__(self, width: int, fan_in: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(width).uniform_(-(fan_in**-0.5), fan_in**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Shifted features [N, C, …]."""
        return x + self.bias.view(-1, *[1] * (x.dim() - 2))


# torch draws the weights of convolutions and linear layers from U(±1/√fan_in) too, which is the authors' choice.


def _unit(inputs: int, outputs: int, *, kernel: int, act: Callable[[], nn.Module]) -> nn.Sequential:
    """Stem and transitions: their BatchNorm has no scale, and the shift is a parameter of its own."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs, affine=False),
        Bias(outputs, inputs * kernel**2),
        act(),
    )


def _paper_head(features: int, classes: int, act: Callable[[], nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(features, classes, bias=False),
        nn.BatchNorm1d(classes, affine=False),
        Bias(classes, features),
        act(),
    )
