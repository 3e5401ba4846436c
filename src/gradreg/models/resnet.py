"""The paper's ImageNet network: ResNet-50 v1.5, in which the 3x3 convolution of a bottleneck carries the stride."""

from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor, nn

from gradreg.models.activations import activation as activation_named
from gradreg.models.normalize import Statistics, first_layer

_STEM_WIDTH = 64
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Inner width and number of bottlenecks of each stage."""
_EXPANSION = 4


def resnet50(
    *,
    classes: int,
    channels: int = 3,
    activation: str = "relu",
    zero_gamma: bool = False,
    mean: Statistics | None = None,
    std: Statistics | None = None,
) -> nn.Module:
    """25,557,032 parameters at 1000 classes. Layers carry torchvision's names, so its ResNet-50 weights fit.

    `zero_gamma` starts the last BatchNorm of every bottleneck at 0, so that each block begins as its shortcut, and the
    classifier at N(0, 0.01²): the large-batch start of the authors' ImageNet recipe.
    """
    act = activation_named(activation)
    layers: dict[str, nn.Module] = {
        "normalize": first_layer(mean, std, channels),
        "conv1": nn.Conv2d(channels, _STEM_WIDTH, 7, stride=2, padding=3, bias=False),
        "bn1": nn.BatchNorm2d(_STEM_WIDTH),
        "act1": act(),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
    }
    inputs = _STEM_WIDTH
    for stage, (width, blocks) in enumerate(_STAGES, start=1):
        strides = [1 if stage == 1 else 2] + [1] * (blocks - 1)
        bottlenecks = []
        for stride in strides:
            bottlenecks.append(Bottleneck(inputs, width, stride, act))
            inputs = width * _EXPANSION
        layers[f"layer{stage}"] = nn.Sequential(*bottlenecks)
    layers |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(inputs, classes)}
    model = nn.Sequential(OrderedDict(layers))
    _initialise(model, zero_gamma)
    return model


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up, around a shortcut that is projected where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        outputs = width * _EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.act = act()
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The activation of the shortcut plus the residual."""
        residual = self.act(self.bn1(self.conv1(x)))
        residual = self.act(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        out: Tensor = self.act(self.downsample(x) + residual)
        return out


def _initialise(model: nn.Module, zero_gamma: bool) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, Bottleneck) and zero_gamma:
            nn.init.zeros_(module.bn3.weight)
        elif isinstance(module, nn.Linear) and zero_gamma:
            nn.init.normal_(module.weight, std=0.01)
