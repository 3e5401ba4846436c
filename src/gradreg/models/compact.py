"""A network for robust CIFAR training without a GPU: 19 million multiply-adds for a 32x32 image.

It has the shape of the fast-training networks around airbench (a 2x2 stem, three stages of two 3x3 convolutions),
minus what fights a gradient penalty: a whitening stem multiplies faint high-frequency directions up to some 45 times,
exactly what the penalty then has to undo; max pooling has kinks, so pooling averages; scaled-down logits would change
the unit of λ. Averaging and the convolution before it are one operation, without which it would be 33 million.
"""

from collections import OrderedDict
from collections.abc import Callable

from torch import nn

from gradreg.checks.scalars import check_integer
from gradreg.errors import ModelError
from gradreg.models.activations import activation as activation_named
from gradreg.models.averaged import AveragedConv2d
from gradreg.models.normalize import Statistics, first_layer

_STEM_WIDTH = 24


def compact(
    *,
    classes: int,
    channels: int = 3,
    activation: str = "gelu",
    width: int = 32,
    mean: Statistics | None = None,
    std: Statistics | None = None,
) -> nn.Module:
    """Stages of `width`, 4 `width` and 4 `width` channels, for images of 9x9 or more.

    `width=64` is the size of the original: 71 million multiply-adds.
    """
    width = check_integer("width", width, least=1, most=10_000, error=ModelError)
    act = activation_named(activation)
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            normalize=first_layer(mean, std, channels),
            stem=nn.Sequential(nn.Conv2d(channels, _STEM_WIDTH, 2), act()),
            stage1=_stage(_STEM_WIDTH, width, act),
            stage2=_stage(width, 4 * width, act),
            stage3=_stage(4 * width, 4 * width, act),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            # BatchNorm bounds the pooled features, so torch's own initialisation gives logits well below 1 in size.
            head=nn.Linear(4 * width, classes),
        )
    )


def _stage(inputs: int, outputs: int, act: Callable[[], nn.Module]) -> nn.Sequential:
    """Two convolutions, with the resolution halved after the first."""
    return nn.Sequential(
        AveragedConv2d(inputs, outputs),
        # A place of its own for the averaging, which older weights files number.
        nn.Identity(),
        nn.BatchNorm2d(outputs),
        act(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        act(),
    )
