"""The curvature bound against dense Hessians."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg import build
from gradreg.bounds import BoundsError, curvature, curvature_radius, quadratic_strength
from gradreg.cli import main
from gradreg.data import load
from gradreg.errors import ConfigError
from gradreg.evaluation.inputs import select
from gradreg.losses import probability_margin, soft_margin

Batch = tuple[Tensor, Tensor]


def test_eigenvalues_are_those_of_the_dense_hessian(smooth_net: nn.Module, batch: Batch) -> None:
    x, y = batch
    smooth_net.eval()
    found = curvature(smooth_net, x, y, tolerance=1e-6, steps=100, batch_size=3)

    def loss(pixels: Tensor, label: Tensor) -> Tensor:
        return soft_margin(smooth_net(pixels[None]).softmax(1), label[None]).squeeze(0)

    for row in range(len(x)):
        dense = torch.autograd.functional.hessian(lambda p, row=row: loss(p, y[row]), x[row]).reshape(192, 192)
        assert_close(found.eigenvalue[row], torch.linalg.eigvalsh(dense)[-1], rtol=1e-4, atol=1e-8)
    assert bool(found.converged.all())


def test_the_soft_margin_is_sound(smooth_net: nn.Module, batch: Batch) -> None:
    """A negative soft margin proves a correct class, so its gap never exceeds the margin's."""
    x, _ = batch
    smooth_net.eval()
    y = smooth_net(x).argmax(1)
    found = curvature(smooth_net, x, y, steps=10)
    assert bool((found.margin >= probability_margin(smooth_net(x), y)).all())
    assert found.bound(largest=float(found.eigenvalue.max())).shape == (7,)
    assert bool((found.bound(1e6) <= found.bound()).all())


def test_a_constant_gradient_has_no_curvature(batch: Batch) -> None:
    """Zero Hessian: the bound is gap/‖∇ℓ‖."""
    gap, slope, C = (
        torch.tensor([0.5, 0.5, 0.0, 0.5]),
        torch.tensor([2.0, 0.0, 0.0, 2.0]),
        torch.tensor([0.0, 0.0, 0.0, -3.0]),
    )
    assert_close(curvature_radius(gap, slope, C), torch.tensor([0.25, torch.inf, 0.0, 0.25]))

    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)[:, :3] * 0 + torch.tensor([1.0, 0.0, -1.0])

    found = curvature(Constant().eval(), batch[0], torch.zeros(7, dtype=torch.int64))
    assert bool((found.eigenvalue == 0).all())
    assert bool(found.converged.all())


def test_kinked_networks_are_refused(batch: Batch) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 5)).double().eval()
    with pytest.raises(BoundsError, match="has a ReLU, which is not twice differentiable"):
        curvature(net, *batch)


def test_batch_size_does_not_matter(smooth_net: nn.Module, batch: Batch) -> None:
    smooth_net.eval()
    before = torch.get_rng_state()
    one, other = (curvature(smooth_net, *batch, batch_size=size, tolerance=1e-8, steps=80) for size in (7, 2))
    assert_close(one.eigenvalue, other.eigenvalue, rtol=1e-6, atol=1e-10)
    assert torch.equal(before, torch.get_rng_state())


def test_the_quadratic_attacker_gains_what_the_proposition_says() -> None:
    """ℓ(v) = ⟨g, v⟩ + C‖v‖²/2 has the largest curvature everywhere, so the bound of Prop. 3.1 is the maximum itself."""
    g, C, delta = np.array([0.3, -1.2, 0.5]), 0.7, 0.9

    def loss(v: NDArray[np.float64]) -> float:
        return -float(g @ v + C * (v @ v) / 2 - (v @ v) / (2 * delta))

    best, lam = minimize(loss, np.zeros(3), tol=1e-10), quadratic_strength(delta, C)
    assert -loss(best.x) == pytest.approx(lam / 2 * float(g @ g), rel=1e-6)
    assert best.x == pytest.approx(lam * g, rel=1e-3)
    assert quadratic_strength(0.25, 0.0) == 0.25
    with pytest.raises(ConfigError, match=r"delta must be below 1/C = 0.5, .*; got 0.5"):
        quadratic_strength(0.5, 2.0)


def test_the_command_says_what_python_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    network = build("small", classes=10, channels=1, activation="gelu").eval()
    save_file(network.state_dict(), tmp_path / "net.safetensors")
    monkeypatch.setenv("COLUMNS", "120")
    named = [str(tmp_path / "net.safetensors"), "--architecture", "small", "--set", "activation=gelu"]
    main(["curvature", *named, "--data", "mnist5k", "--images", "5", "--device", "cpu", "--delta", "1/100"])
    test = load("mnist5k").test
    index = select(len(test), 5, 0)
    found = curvature(network, test.floats(index), test.labels[index])
    told = capsys.readouterr().out
    largest = float((found.eigenvalue + found.residual).max())
    assert f"{float(found.eigenvalue.max()):.4g}" in told
    assert f"λ = {quadratic_strength(0.01, max(largest, 0)):.4g}" in told
