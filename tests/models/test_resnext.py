"""The paper's CIFAR network, layer by layer, and the strange head that its numbers depend on."""

import math
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from gradreg.errors import ModelError
from gradreg.models import build
from gradreg.models.resnext import Bias, BranchBlock


def test_34_weight_layers_and_no_stride() -> None:
    model = build("resnext34_2x32", classes=10)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert len(convolutions) + len(linear) == 34
    assert all(c.stride == (1, 1) and c.bias is None for c in convolutions)
    assert [c.groups for c in convolutions].count(2) == sum(isinstance(m, BranchBlock) for m in model.modules()) == 15
    assert sum(isinstance(m, nn.AvgPool2d) for m in model.modules()) == 2
    assert not any(isinstance(m, nn.MaxPool2d) for m in model.modules())


def test_widths_and_resolutions_of_the_stages() -> None:
    model = build("resnext34_2x32", classes=10).eval()
    shapes = {}
    x = torch.rand(1, 3, 32, 32)
    for name, layer in model.named_children():
        x = layer(x)
        shapes[name] = tuple(x.shape[1:])
    assert shapes["stage1"] == (32, 32, 32)
    assert shapes["stage2"] == (64, 16, 16)
    assert shapes["stage3"] == (128, 8, 8)
    assert shapes["head"] == (10,)


def test_block_averages_two_separate_branches() -> None:
    """The grouped convolution is two convolutions, each on its own half of the channels."""
    block = BranchBlock(4, nn.ReLU).eval()
    dense, _, _, grouped, _ = block.branches
    assert isinstance(dense, nn.Conv2d)
    assert isinstance(grouped, nn.Conv2d)
    x = torch.randn(2, 4, 6, 6)
    normal = math.sqrt(1 + 1e-5)  # a fresh BatchNorm in eval mode
    inner = F.relu(F.conv2d(x, dense.weight, padding=1) / normal)
    branches = [
        F.conv2d(half, weight, padding=1) / normal
        for half, weight in zip(inner.chunk(2, 1), grouped.weight.chunk(2), strict=True)
    ]
    assert_close(block(x), F.relu(x + (branches[0] + branches[1]) / 2))


def test_only_the_blocks_have_an_affine_batchnorm() -> None:
    model = build("resnext34_2x32", classes=10)
    affine = {name for name, m in model.named_modules() if isinstance(m, nn.BatchNorm2d | nn.BatchNorm1d) and m.affine}
    assert len(affine) == 30
    assert all(name.startswith("stage") for name in affine)


@pytest.mark.parametrize(
    "layer", ["stem.0.weight", "stem.2.bias", "transition1.0.weight", "head.0.weight", "stage3.0.branches.3.weight"]
)
def test_initial_weights_are_uniform_within_one_over_root_fan_in(layer: str) -> None:
    fan_in = {"stem": 27, "transition1": 32, "head": 128, "stage3": 9 * 128}[layer.split(".")[0]]
    weight = build("resnext34_2x32", classes=10).get_parameter(layer).detach()
    bound = fan_in**-0.5
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.9 * bound
    assert_close(weight.std().item(), bound / math.sqrt(3), rtol=0.2, atol=0)


def test_biases_of_transitions_and_head_are_drawn_from_their_own_fan_in() -> None:
    model = build("resnext34_2x32", classes=1000)
    biases = [m.bias.detach() for m in model.modules() if isinstance(m, Bias)]
    bounds = [27**-0.5, 32**-0.5, 64**-0.5, 128**-0.5]
    for bias, bound in zip(biases, bounds, strict=True):
        assert 0.9 * bound < bias.abs().max() <= bound


@pytest.mark.parametrize("activation", ["relu", "c2relu"])
def test_logits_of_the_paper_head_pass_through_the_activation(activation: str) -> None:
    model = build("resnext34_2x32", classes=10, activation=activation)
    logits = model(torch.rand(64, 3, 8, 8))
    assert (logits >= 0).all()
    assert 0.1 < (logits == 0).float().mean() < 0.7


def test_logits_have_unit_batch_variance_before_bias_and_activation() -> None:
    model = build("resnext34_2x32", classes=10)
    seen: list[Tensor] = []
    model.get_submodule("head.1").register_forward_hook(lambda module, inputs, output: seen.append(output))
    model(torch.rand(32, 3, 8, 8))
    # BatchNorm divides by √(variance + 1e-5), so a small variance falls visibly short of 1.
    assert_close(seen[0].var(0, correction=0), torch.ones(10), rtol=0, atol=0.02)
    assert_close(seen[0].mean(0), torch.zeros(10), rtol=0, atol=1e-4)


def test_paper_head_caps_confidence() -> None:
    """A perfect classifier of ten balanced classes has logits 1/√(0.1·0.9) apart: probability 0.757, entropy 0.278."""
    head = build("resnext34_2x32", classes=10).get_submodule("head")
    labels = torch.arange(10).repeat(5)
    with torch.no_grad():
        head.get_parameter("0.weight").copy_(torch.eye(10, 128))
        head.get_parameter("2.bias").fill_(2.0)  # lifts all logits above the ReLU's zero
    logits = head(torch.eye(128)[labels])
    assert_close(logits.softmax(1).max(1).values.mean().item(), 0.757, rtol=0, atol=5e-4)
    assert_close(F.cross_entropy(logits, labels).item(), 0.278, rtol=0, atol=5e-4)


def test_linear_head_gives_signed_logits_and_takes_a_single_image() -> None:
    logits = build("resnext34_2x32", classes=10, head="linear")(torch.rand(1, 3, 16, 16))
    assert (logits < 0).any()


def test_unknown_head() -> None:
    message = "There is no head 'papers' (did you mean 'paper'?): choose one of paper, linear."
    with pytest.raises(ModelError, match=re.escape(message)):
        build("resnext34_2x32", classes=10, head="papers")
