"""A network for 28x28 grey images that learns in seconds (3.2 million multiply-adds): demo, tests, examples."""

from collections import OrderedDict

from torch import nn

from gradreg.models.activations import activation as activation_named
from gradreg.models.normalize import Statistics, first_layer

_WIDTHS = (16, 32, 64)
_GRID = 4
"""Side of the last feature map of a 28x28 image; other sizes are pooled to it. Where a stroke is tells digits apart."""


def small(
    *,
    classes: int,
    channels: int = 1,
    activation: str = "gelu",
    mean: Statistics | None = None,
    std: Statistics | None = None,
) -> nn.Module:
    """Three convolutions and a linear layer, for images of 16x16 or more.

    No BatchNorm: the network is the same function in training as in evaluation and treats each image alone, so the
    penalty differentiates an image's own loss and its second forward leaves no trace in running statistics. He
    initialisation keeps the signal's size in its place.
    """
    act = activation_named(activation)
    first, second, third = _WIDTHS
    model = nn.Sequential(
        OrderedDict[str, nn.Module](
            normalize=first_layer(mean, std, channels),
            # A kernel of three strides meets every pixel equally often.
            conv1=nn.Conv2d(channels, first, 6, stride=2, padding=2),
            act1=act(),
            conv2=nn.Conv2d(first, second, 5, padding=2),
            act2=act(),
            pool2=nn.AvgPool2d(2),
            conv3=nn.Conv2d(second, third, 4),
            act3=act(),
            pool3=nn.AdaptiveAvgPool2d(_GRID),
            flatten=nn.Flatten(),
            head=nn.Linear(third * _GRID**2, classes),
        )
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model
