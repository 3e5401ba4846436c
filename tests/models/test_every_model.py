"""What holds for every model with every activation."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from gradreg.models import build, names
from gradreg.models.activations import ACTIVATIONS

SMOOTH = [name for name in ACTIVATIONS if name != "relu"]


def make(name: str, activation: str, channels: int = 3) -> tuple[nn.Module, Tensor, Tensor]:
    size = 64 if name == "resnet50" else 16
    model = build(name, classes=5, channels=channels, activation=activation)
    return model, torch.rand(4, channels, size, size, requires_grad=True), torch.tensor([0, 1, 2, 4])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", names())
def test_every_parameter_and_pixel_gets_a_finite_gradient(name: str, activation: str) -> None:
    model, images, labels = make(name, activation)
    logits = model(images)
    torch.autograd.backward(F.cross_entropy(logits, labels))
    assert logits.shape == (4, 5)
    assert logits.isfinite().all()
    assert images.grad is not None
    assert images.grad.isfinite().all()
    assert (images.grad.flatten(1).norm(dim=1) > 0).all()
    for parameter, weight in model.named_parameters():
        assert weight.grad is not None, parameter
        assert weight.grad.isfinite().all(), parameter


@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("name", ["small", "compact", "residual", "resnext34_2x32"])
def test_double_backward_is_finite_and_agrees_with_differences(name: str, activation: str) -> None:
    """The slope of ½‖∇ₓ ℓ‖² along a weight direction, by double backpropagation and by central difference."""
    model, images, labels = make(name, activation)
    model, images = model.double().eval(), images.detach().double().requires_grad_()
    weight = next(iter(model.parameters()))
    direction = torch.randn(weight.shape, dtype=torch.float64)

    def penalty() -> Tensor:
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(images), labels), images, create_graph=True)
        return gradient.square().sum() / 2

    (exact,) = torch.autograd.grad(penalty(), weight)
    with torch.no_grad():
        weight.add_(direction, alpha=1e-5)
    above = penalty().item()
    with torch.no_grad():
        weight.sub_(direction, alpha=2e-5)
    below = penalty().item()
    assert exact.isfinite().all()
    assert_close((exact * direction).sum().item(), (above - below) / 2e-5, rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("name", names())
def test_channels_reach_the_first_convolution(name: str) -> None:
    model, images, _ = make(name, "gelu", channels=2)
    assert [m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)][:1] in ([2], [])
    assert model.eval()(images).isfinite().all()


@pytest.mark.parametrize("name", names())
def test_every_nonlinearity_is_the_one_asked_for(name: str) -> None:
    model = build(name, classes=5, activation="silu")
    kinds = {type(m) for m in model.modules()}
    assert nn.SiLU in kinds
    assert not kinds & {nn.ReLU, nn.GELU, nn.Softplus}


@pytest.mark.parametrize("name", names())
def test_evaluation_does_not_mix_images(name: str) -> None:
    model, images, _ = make(name, "gelu")
    model = model.eval()
    assert_close(model(images)[1:3], model(images[1:3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["small", "compact", "residual"])
def test_the_seed_decides_the_weights(name: str) -> None:
    torch.manual_seed(7)
    first = build(name, classes=5).state_dict()
    torch.manual_seed(7)
    again = build(name, classes=5).state_dict()
    other = build(name, classes=5).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    assert not torch.equal(first["head.weight"], other["head.weight"])
