"""Models whose nearest adversarial image is known, and how to find it without gradreg's own attacks."""

import torch
from scipy.optimize import brentq, linprog
from torch import Tensor, nn


class Linear(nn.Module):
    """Logits W·x + b of flattened images, summed pixel by pixel so that batches cannot change the rounding."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1)[:, None, :] * self.weight).sum(2) + self.bias


class Balls(nn.Module):
    """Class 1 inside a ball, class 2 inside another, class 0 elsewhere: f_i = r_i² − ‖x − c_i‖²."""

    def __init__(self, centres: Tensor, radii: Tensor) -> None:
        super().__init__()
        self.centres, self.radii = nn.Parameter(centres), nn.Parameter(radii)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.radii**2 - (x.flatten(1)[:, None, :] - self.centres).square().sum(2)
        return torch.cat([torch.zeros_like(inside[:, :1]), inside], 1)


def linear_model(pixels: int, classes: int, seed: int = 0) -> Linear:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, pixels, generator=generator)
    return Linear(weight, 0.1 * torch.randn(classes, generator=generator)).eval()


def images(count: int, pixels: int, where: str, seed: int = 1) -> Tensor:
    """Images in the middle of the box, or at its walls and corners, where the nearest adversarial image is clipped."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(count, pixels, generator=generator)
    return 0.45 + 0.1 * noise if where == "middle" else (noise > 0.5).float()


def exact_distance(model: Linear, x: Tensor, y: Tensor, threat: str) -> Tensor:
    """The distance to the nearest half-space of another class inside [0, 1], by scipy, one image at a time."""
    nearest = []
    weight, bias = model.weight.detach().double(), model.bias.detach().double()
    for image, label in zip(x.flatten(1).double(), y.tolist(), strict=True):
        far = [
            _to_halfspace(image, weight[rival] - weight[label], float(bias[rival] - bias[label]), threat)
            for rival in range(len(weight))
            if rival != label
        ]
        nearest.append(min(far))
    return torch.tensor(nearest)


def _to_halfspace(x: Tensor, normal: Tensor, offset: float, threat: str) -> float:
    """min ‖d‖ with ⟨normal, x + d⟩ + offset ≥ 0 and 0 ≤ x + d ≤ 1."""
    need = -float(normal @ x) - offset
    if float((normal * ((normal > 0).double() - x)).sum()) < need:
        return float("inf")
    if threat == "l2":
        # Stationarity: d = clip(t·normal), so the multiplier t is the root of an increasing function.
        def gain(t: float) -> float:
            return float((normal * ((x + t * normal).clamp(0, 1) - x)).sum()) - need

        top = 1.0
        while gain(top) < 0:
            top *= 2
        t = float(brentq(gain, 0, top, xtol=1e-14))
        return float(((x + t * normal).clamp(0, 1) - x).norm())
    # d = up − down, and a bound on the largest of them (l∞) or their sum (l1).
    pixels = len(x)
    up, down = (1 - x).tolist(), x.tolist()
    constraint = [[*(-normal).tolist(), *normal.tolist(), 0.0]]
    if threat == "linf":
        rows = [[float(i == j) for j in range(pixels)] * 2 + [-1.0] for i in range(pixels)]
        cost = [0.0] * (2 * pixels) + [1.0]
        solved = linprog(cost, constraint + rows, [-need] + [0.0] * pixels, bounds=_bounds(up, down))
    else:
        solved = linprog([1.0] * (2 * pixels) + [0.0], constraint, [-need], bounds=_bounds(up, down))
    return float(solved.fun or 0.0)


def _bounds(up: list[float], down: list[float]) -> list[tuple[float, float]]:
    return [(0.0, limit) for limit in (*up, *down)] + [(0.0, 1.0)]


def small_network(pixels: int = 20, classes: int = 4, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 32), nn.Tanh(), nn.Linear(32, classes))
    for parameter in network.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5
    first = network[1]
    assert isinstance(first, nn.Linear)
    # The grey image in the middle of the box is where all classes meet, so that noise finds other classes.
    first.weight.data.mul_(4)
    first.bias.data = -0.5 * first.weight.data.sum(1)
    return network.to(dtype).eval()
