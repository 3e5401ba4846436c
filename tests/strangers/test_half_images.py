"""Images in half precision: pixels are what they are, and what is around them is computed in single precision."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from gradreg.bounds import clever, curvature
from gradreg.norms import Mahalanobis

HALF = [torch.float16, torch.bfloat16]


class HalfSpace(nn.Module):
    """Class 1 beyond a plane at a known distance from grey images of 0.75."""

    def __init__(self, distance: float) -> None:
        super().__init__()
        self.normal = nn.Parameter(torch.full((16,), 0.25))
        self.level = 0.75 * 4 - distance

    def forward(self, x: Tensor) -> Tensor:
        height = 50 * (x.flatten(1) @ self.normal - self.level)
        return torch.stack([torch.zeros_like(height), height], 1)


@pytest.mark.parametrize("kind", HALF)
@pytest.mark.parametrize("method", ["sequential", "cohen"])
def test_certificates_near_a_plane(kind: torch.dtype, method: str) -> None:
    """Noise of σ = 10⁻³ is finer than half precision at 0.75: rounded, it gave radii six times too large."""
    distance, sigma = 1e-3, 1e-3
    x = torch.full((20, 1, 4, 4), 0.75, dtype=kind)
    found = gradreg.certify(HalfSpace(distance).eval(), x, sigma=sigma, n=2000, alpha=1e-5, method=method)
    assert bool((found.radius <= distance).all())
    assert_close(found.frequency.mean().item(), float(norm.cdf(distance / sigma)), rtol=0, atol=0.01)


def smooth() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 4)).eval()


def images() -> tuple[Tensor, Tensor]:
    x = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(1)).bfloat16().half().float()
    with torch.no_grad():
        return x, smooth()(x).argmax(1)


def omega(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return gradreg.bounds(model, x, y, gradreg.estimate_regularity(model, (x, y), threat="l2", method="local")).omega


ROOT = torch.randn(64, 64, generator=torch.Generator().manual_seed(2)) / 16 + torch.eye(64)
CURVED = Mahalanobis(ROOT @ ROOT.T)
"""A norm whose length is a product of matrices."""

MEASURES: dict[str, Callable[..., Any]] = {
    "bounds": omega,
    "clever": lambda model, x, y: clever(model, x, y, blocks=4, samples=8).score,
    "curvature": lambda model, x, y: curvature(model, x, y).eigenvalue,
    "attack": lambda model, x, y: gradreg.attack(model, x, y, threat="l2", attacks="quick").distance,
    "attack in a norm of matrices": lambda model, x, y: gradreg.attack(model, x, y, threat=CURVED).distance,
    "penalty in a norm of matrices": lambda model, x, y: (
        gradreg.regularized_loss(model, x, y, threat=CURVED, lam=0.1).penalty
    ),
    "certify": lambda model, x, y: gradreg.certify(model, x, sigma=0.25, n=200).radius,
    "diagnose": lambda model, x, y: [
        float(flag.evidence.get("value", 0)) for flag in gradreg.diagnose(model, x, y, threat="l2", eps=0.3)
    ],
}


@pytest.mark.parametrize("kind", HALF)
@pytest.mark.parametrize("name", [name for name in MEASURES if "penalty" not in name])
def test_every_measure_is_that_of_the_same_pixels(name: str, kind: torch.dtype) -> None:
    model, (x, y) = smooth(), images()
    exact, measured = x.to(kind).float(), MEASURES[name]
    assert_close(measured(model, exact.to(kind), y), measured(model, exact, y), rtol=0, atol=0)


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_under_autocast_is_that_outside(name: str) -> None:
    model, (x, y) = smooth(), images()
    with torch.autocast("cpu", torch.bfloat16):
        inside = MEASURES[name](model, x, y)
    assert_close(inside, MEASURES[name](model, x, y), rtol=0, atol=0)


_FIRST_CALLS = """
import random, torch, gradreg
from torch import nn

model, x = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).eval(), torch.rand(4, 1, 8, 8)
y = model(x).argmax(1)
before = random.getstate(), torch.get_rng_state()
gradreg.attack(model, x, y, threat="linf", attacks="quick")
gradreg.certify(model, x, sigma=0.1, n=100)
print(before[0] == random.getstate() and torch.equal(before[1], torch.get_rng_state()))
"""


def test_no_global_stream_moves() -> None:
    """Not at the first call of a process either, which imports what draws when it is imported."""
    said = subprocess.run([sys.executable, "-c", _FIRST_CALLS], capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"
