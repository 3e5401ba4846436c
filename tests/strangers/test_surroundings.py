"""What a caller has switched on around a call does not change what is found in it."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import gradreg
from gradreg.errors import DataError

X = 0.3 + 0.4 * torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(96, 4)).eval()


Y = network()(X).argmax(1)


def _attacked() -> Tensor:
    return gradreg.attack(network(), X, Y, attacks="quick").distance


def test_autocast_does_not_lengthen_distances() -> None:
    exact = _attacked()
    certified = gradreg.certify(network(), X, sigma=0.1, n=100).radius
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(_attacked(), exact)
        assert torch.equal(gradreg.certify(network(), X, sigma=0.1, n=100).radius, certified)
        _, gradient = gradreg.Classifier(network()).loss_and_gradient(X, Y, gradreg.losses.cross_entropy)
        assert network()(X).dtype == torch.bfloat16  # it is on again
    assert torch.equal(gradient, gradreg.Classifier(network()).loss_and_gradient(X, Y, gradreg.losses.cross_entropy)[1])


def test_attacks_run_under_a_flop_counter() -> None:
    with FlopCounterMode(display=False) as counter:
        found = _attacked()
    assert torch.equal(found, _attacked())
    assert counter.get_total_flops() > 0


def test_transforms_of_torch_func_are_named() -> None:
    model = network()

    def loss(scale: Tensor) -> Tensor:
        return gradreg.regularized_loss(model, X * scale, Y, lam=0.1).clean

    with pytest.raises(DataError, match=r"x must be a plain tensor; got one of torch.func"):
        torch.func.grad(loss)(torch.tensor(1.0))
    with pytest.raises(DataError, match=r"x must be a plain tensor; got one of torch.func"):
        torch.vmap(lambda x: gradreg.attack(model, x[None], Y[:1]).distance)(X)


def test_no_weight_gets_a_gradient() -> None:
    model = network()
    gradreg.attack(model, X, Y, attacks=["deepfool"])
    assert all(weight.grad is None for weight in model.parameters())


def test_a_criterion_that_mixes_images_is_warned_of() -> None:
    def mixes(logits: Tensor, y: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(logits, y, reduction="none")
        return losses - losses.mean()  # whose sum is 0, whatever the images are

    def apart(logits: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, y, reduction="none")

    with pytest.warns(gradreg.GradregWarning, match="criterion gives an image another loss when"):
        gradreg.regularized_loss(network(), X, Y, lam=0.1, criterion=mixes)
    gradreg.regularized_loss(network(), X, Y, lam=0.1, criterion=apart)


def test_sparse_buffers_are_compared() -> None:
    model = network()
    model.register_buffer("adjacency", torch.eye(3).to_sparse())
    found = gradreg.regularized_loss(model, X, Y, lam=0.1).slope
    assert torch.equal(found, gradreg.regularized_loss(network(), X, Y, lam=0.1).slope)
