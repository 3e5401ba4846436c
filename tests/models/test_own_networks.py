"""The networks of our own: what they promise beyond their size."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from gradreg.errors import ModelError
from gradreg.models import build
from gradreg.models.averaged import AveragedConv2d
from gradreg.models.residual import PreActivationBlock


@pytest.mark.parametrize("name", ["compact", "residual"])
def test_logits_start_at_a_sane_scale(name: str) -> None:
    """Neither saturated nor vanishing, so that λ means the same as on other networks."""
    logits = build(name, classes=10)(torch.rand(32, 3, 32, 32))
    assert 0.02 < logits.std(0).mean() < 1
    assert logits.abs().max() < 2
    assert_close(F.cross_entropy(logits, torch.arange(32) % 10).item(), 2.303, rtol=0, atol=0.2)


@pytest.mark.parametrize("name", ["compact", "residual", "small"])
def test_nothing_in_it_is_kinked(name: str) -> None:
    kinked = nn.ReLU | nn.MaxPool2d | nn.AdaptiveMaxPool2d
    assert not any(isinstance(m, kinked) for m in build(name, classes=10).modules())


@pytest.mark.parametrize(
    ("name", "sizes"), [("compact", (9, 28, 33, 64)), ("residual", (16, 28, 33)), ("small", (16, 28, 32, 45))]
)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_size_and_channels(name: str, sizes: tuple[int, ...], channels: int) -> None:
    model = build(name, classes=7, channels=channels).eval()
    for size in sizes:
        images = torch.rand(2, channels, size, size + 3)
        logits = model(images)
        assert logits.shape == (2, 7)
        assert not torch.equal(logits, model(images.flip(-1)))  # it does look at the image


@pytest.mark.parametrize("size", [(2, 2), (7, 8), (31, 31), (15, 4)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_an_averaged_convolution_is_the_convolution_and_the_average(
    size: tuple[int, int], layout: torch.memory_format
) -> None:
    torch.manual_seed(0)
    ours = AveragedConv2d(5, 6).double()
    torch.manual_seed(0)
    plain = nn.Conv2d(5, 6, 3, padding=1, bias=False)
    theirs = nn.Sequential(plain, nn.AvgPool2d(2)).double()
    assert torch.equal(ours.weight, plain.weight), "the same seed gives the same network"
    x = torch.randn(2, 5, *size, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    assert_close(ours(x), theirs(x))
    gradients = [torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()]) for module in (ours, theirs)]
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("name", ["compact", "residual"])
@pytest.mark.parametrize("width", [0, -3, 1.5, True, "wide"])
def test_a_senseless_width_is_refused(name: str, width: object) -> None:
    with pytest.raises(ModelError, match=r"width must be (from [12] to 10000|a whole number); got"):
        build(name, classes=10, width=width)


def test_residual_refuses_an_odd_width() -> None:
    with pytest.raises(ModelError, match="width must be even, since the stem has half of it; got 5"):
        build("residual", classes=10, width=5)


def test_a_block_adds_to_its_input() -> None:
    """Without a last convolution it is the identity; with one, the input returns unchanged where that is taken off."""
    block = PreActivationBlock(4, nn.GELU).eval()
    x = torch.randn(2, 4, 5, 5)
    assert_close(block(x) - block.residual(x), x)
    last = block.residual[-1]
    assert isinstance(last, nn.Conv2d)
    nn.init.zeros_(last.weight)
    assert torch.equal(block(x), x)


def test_small_treats_each_image_alone_in_training() -> None:
    model = build("small", classes=10)
    images = torch.rand(5, 1, 28, 28)
    assert_close(model(images)[:2], model(images[:2]))
    assert not list(model.buffers())


def test_small_keeps_the_signal_alive_through_its_layers() -> None:
    """Without BatchNorm only the initialisation does; torch's own starts logits 30 times smaller and stalls."""
    logits = build("small", classes=10)(torch.rand(64, 1, 28, 28))
    assert 0.02 < logits.std(0).mean() < 2


def test_small_learns_random_labels_quickly() -> None:
    model = build("small", classes=10)
    images, labels = torch.rand(40, 1, 28, 28), torch.randint(0, 10, (40,))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(images), labels))
        optimiser.step()
    assert (model(images).argmax(1) == labels).float().mean() > 0.95
