"""The penalty in norms without a short name: finite differences against double backprop and closed forms."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from gradreg import ConfigError, regularized_loss
from gradreg.norms import Mahalanobis, Threat, Weighted
from gradreg.norms.base import Radius
from own_norms import SumOfChannels, ThreeHalves, matrix, own_norms

NORMS = own_norms((3, 8, 8))
each = pytest.mark.parametrize("t", NORMS.values(), ids=NORMS)
Batch = tuple[Tensor, Tensor]


@each
def test_the_slope_is_the_dual_norm_of_the_gradient(t: Threat, smooth_net: nn.Module, batch: Batch) -> None:
    fd = regularized_loss(smooth_net, *batch, threat=t, lam=1.0, h=1e-5, order=2)
    exact = regularized_loss(smooth_net, *batch, threat=t, lam=1.0, method="double-backprop")
    assert_close(fd.slope, exact.slope, rtol=1e-5, atol=1e-9)
    assert_close(fd.penalty, exact.penalty, rtol=1e-5, atol=1e-9)
    assert_close(exact.slope, t.dual_norm(gradient(smooth_net, *batch)), rtol=1e-9, atol=0)


def gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(nn.functional.cross_entropy(model(leaf), y, reduction="sum"), leaf)
    return found


@each
def test_weight_gradients_are_those_of_double_backprop(t: Threat, smooth_net: nn.Module, batch: Batch) -> None:
    """Steepest ascent maximises the slope, so its own change has no first-order effect (Danskin)."""
    gradients = []
    for options in ({"h": 1e-5, "order": 2}, {"method": "double-backprop"}):
        smooth_net.zero_grad()
        regularized_loss(smooth_net, *batch, threat=t, eps=0.3, **options).backward()
        gradients.append(
            torch.cat([weight.grad.flatten() for weight in smooth_net.parameters() if weight.grad is not None])
        )
    assert float((gradients[0] - gradients[1]).norm() / gradients[1].norm()) < 1e-4


def test_a_covariance_gives_the_structured_penalty(smooth_net: nn.Module, batch: Batch) -> None:
    """Roth et al. (2018): (λ/2)·gᵀΣg."""
    covariance = matrix(192)
    out = regularized_loss(smooth_net, *batch, threat=Mahalanobis.of_covariance(covariance), lam=0.5, h=1e-5, order=2)
    flat = gradient(smooth_net, *batch).flatten(1)
    assert_close(out.penalty, (flat @ covariance * flat).sum(1).mean() * 0.25, rtol=1e-5, atol=0)


def test_autocast_does_not_reach_the_norm(batch: Batch) -> None:
    """A matrix product in half precision would turn the direction."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    x, y = batch[0].float(), batch[1]
    t = Mahalanobis(matrix(192))
    plain = regularized_loss(model, x, y, threat=t, lam=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        cast = regularized_loss(model, x, y, threat=t, lam=1.0)
    assert_close(cast.grad_norm, plain.grad_norm, rtol=1e-5, atol=0)


def test_a_step_may_be_as_long_as_an_image_is_wide_in_that_norm(smooth_net: nn.Module, batch: Batch) -> None:
    """Known after the first images of a shape: a step on an accelerator does not wait to find out."""
    asked = []

    class Thousandfold(SumOfChannels):
        def norm(self, v: Tensor) -> Tensor:
            asked.append(len(v))
            return 1000 * super().norm(v)

        def dual_norm(self, g: Tensor) -> Tensor:
            return super().dual_norm(g) / 1000

        def ascent(self, g: Tensor) -> Tensor:
            return super().ascent(g) / 1000

        def project(self, v: Tensor, radius: Radius) -> Tensor:
            return super().project(v, radius / 1000)

        def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
            return super().sample(like, radius / 1000, generator)

    t = Thousandfold()
    gradreg.GradientPenalty(threat=t, lam=1.0, h=1000.0)(smooth_net, *batch)
    with pytest.raises(ConfigError, match=r"h must be at most .* in thousandfold"):
        regularized_loss(smooth_net, *batch, threat=t, lam=1.0, h=1e9)
    asked.clear()
    with pytest.raises(ConfigError, match=r"h must be at most"):
        regularized_loss(smooth_net, *batch, threat=t, lam=1.0, h=1e9)
    assert not asked


def test_norms_that_do_not_fit_are_refused(smooth_net: nn.Module, batch: Batch) -> None:
    class Wrong(SumOfChannels):
        def dual_norm(self, g: Tensor) -> Tensor:
            return self.norm(g)

    with pytest.raises(ConfigError, match=r"Wrong\.ascent must return"):
        regularized_loss(smooth_net, *batch, threat=Wrong(), lam=1.0)
    with pytest.raises(ConfigError, match=r"weights must have the shape of an image, \(3, 8, 8\)"):
        regularized_loss(smooth_net, *batch, threat=Weighted("l2", torch.ones(5)), lam=1.0)
    with pytest.raises(ConfigError, match=r"threat must be one of .* or a gradreg\.norms\.Threat; got <class"):
        regularized_loss(smooth_net, *batch, threat=ThreeHalves, lam=1.0)  # type: ignore[arg-type]
