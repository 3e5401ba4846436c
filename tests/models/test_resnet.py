"""ResNet-50 v1.5: where the strides are, the names of its layers, and the zero-gamma start."""

import math

import torch
from torch import nn
from torch.testing import assert_close

from gradreg.models import build
from gradreg.models.resnet import Bottleneck


def bottlenecks(model: nn.Module) -> list[Bottleneck]:
    return [m for m in model.modules() if isinstance(m, Bottleneck)]


def test_fifty_weight_layers_besides_the_projections() -> None:
    with torch.device("meta"):
        model = build("resnet50", classes=1000)
    weighted = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "downsample" not in n]
    assert len(weighted) == 50
    projected = [isinstance(b.downsample, nn.Sequential) for b in bottlenecks(model)]
    assert [i for i, has in enumerate(projected) if has] == [0, 3, 7, 13]


def test_the_3x3_convolution_carries_the_stride() -> None:
    with torch.device("meta"):
        blocks = bottlenecks(build("resnet50", classes=10))
    assert [b.conv2.stride[0] for b in blocks] == [1] * 3 + [2] + [1] * 3 + [2] + [1] * 5 + [2] + [1] * 2
    assert all(b.conv1.stride == b.conv3.stride == (1, 1) for b in blocks)


def test_layer_names_are_torchvisions() -> None:
    with torch.device("meta"):
        shapes = {name: tuple(v.shape) for name, v in build("resnet50", classes=1000).state_dict().items()}
    assert len(shapes) == 320
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["bn1.running_var"] == (64,)
    assert shapes["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["layer2.3.conv2.weight"] == (128, 128, 3, 3)
    assert shapes["layer4.2.bn3.weight"] == (2048,)
    assert shapes["fc.weight"] == (1000, 2048)


def test_convolutions_start_kaiming_normal_fan_out() -> None:
    conv = bottlenecks(build("resnet50", classes=10))[5].conv2
    assert_close(conv.weight.std().item(), math.sqrt(2 / (9 * conv.out_channels)), rtol=0.02, atol=0)
    assert conv.weight.abs().max() > 3 * conv.weight.std()  # a uniform distribution ends at √3


def test_zero_gamma_makes_each_block_its_shortcut() -> None:
    model = build("resnet50", classes=1000, zero_gamma=True)
    for block in bottlenecks(model):
        x = torch.randn(2, block.conv1.in_channels, 4, 4).relu()
        assert torch.equal(block(x), block.downsample(x).relu())
        if isinstance(block.downsample, nn.Identity):
            assert torch.equal(block(x), x)
    assert_close(model.get_parameter("fc.weight").std().item(), 0.01, rtol=0.02, atol=0)


def test_without_zero_gamma_blocks_do_something() -> None:
    block = bottlenecks(build("resnet50", classes=10))[1]
    x = torch.randn(2, 256, 4, 4).relu()
    assert not torch.allclose(block(x), x)
