"""Base classifiers whose smoothed classifier is known exactly: its class and its distance to the boundary.

A half-space, where the certificate is tight, a slab and a ball, where it is not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import ncx2, norm
from torch import Tensor

SHAPE = (3, 2, 2)
SIZE = 12
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """A base classifier, and of images its smoothed class and the exact l2 distance within which it stays."""

    model: Callable[[Tensor], Tensor]
    truth: Callable[[Tensor], tuple[Floats, Floats]]
    images: Callable[[int, torch.Generator], Tensor]


def _two(score: Tensor) -> Tensor:
    return torch.stack([score, -score], 1)


def half_space(sigma: float, worst: bool) -> Known:
    """Along one direction; with `worst`, images lie a hair below the radii of the grid, where errors are likeliest."""
    direction = torch.linspace(-1, 1, SIZE, dtype=torch.float64)
    direction = direction / direction.norm()

    def images(count: int, source: torch.Generator) -> Tensor:
        far = 1.5 * sigma * (2 * torch.rand(count, generator=source, dtype=torch.float64) - 1)
        if worst:
            step = sigma / 16
            far = far.sign() * ((far.abs() / step).ceil() * step - 1e-5)
        other = 0.05 * (torch.rand(count, SIZE, generator=source, dtype=torch.float64) - 0.5)
        other = other - (other @ direction)[:, None] * direction
        x: Tensor = 0.5 + other + far[:, None] * direction
        return x.view(-1, *SHAPE)

    def truth(x: Tensor) -> tuple[Floats, Floats]:
        far = ((x.flatten(1).double() - 0.5) @ direction).numpy()
        return (far < 0).astype(float), np.abs(far)

    return Known(lambda x: _two((x.flatten(1).double() - 0.5) @ direction), truth, images)


def slab(sigma: float, width: float = 0.2) -> Known:
    """Class 0 between two parallel planes."""
    direction = torch.ones(SIZE, dtype=torch.float64) / SIZE**0.5

    def inside(far: float) -> float:
        return float(norm.cdf((width - far) / sigma) - norm.cdf((-width - far) / sigma))

    # The smoothed classifier has planes of its own.
    edge = float(brentq(lambda far: inside(far) - 0.5, 0, 10)) if inside(0) > 0.5 else 0.0
    return _by_a_number(lambda x: ((x.flatten(1).double() - 0.5) @ direction).abs(), width, edge, direction)


def ball(sigma: float, radius: float = 0.6) -> Known:
    """Class 0 within a ball: the probability is a noncentral χ² one."""

    def inside(far: float) -> float:
        return float(ncx2.cdf((radius / sigma) ** 2, SIZE, (far / sigma) ** 2))

    edge = float(brentq(lambda far: inside(far) - 0.5, 1e-9, 10)) if inside(0) > 0.5 else 0.0
    direction = torch.eye(SIZE, dtype=torch.float64)[0]
    return _by_a_number(lambda x: (x.flatten(1).double() - 0.5).norm(dim=1), radius, edge, direction)


def _by_a_number(number: Callable[[Tensor], Tensor], width: float, edge: float, direction: Tensor) -> Known:
    """Class 0 where a distance is below `width`, smoothed where it is below `edge`; it grows along `direction`."""

    def images(count: int, source: torch.Generator) -> Tensor:
        far = 0.49 * torch.rand(count, generator=source, dtype=torch.float64)
        # Along `direction` only, so that pixels stay in the box.
        return (0.5 + far[:, None] * direction).clamp(0, 1).view(-1, *SHAPE)

    def truth(x: Tensor) -> tuple[Floats, Floats]:
        found = number(x).numpy()
        return (found >= edge).astype(float), np.abs(found - edge)

    return Known(lambda x: _two(width - number(x)), truth, images)


KNOWN: dict[str, Callable[[float], Known]] = {
    "half-space": lambda sigma: half_space(sigma, worst=False),
    "half-space, worst distances": lambda sigma: half_space(sigma, worst=True),
    "slab": slab,
    "ball": ball,
}


def false_certificates(name: str, count: int, sigma: float, seed: int, **options: Any) -> tuple[int, int]:
    """How many of so many images were certified, and how many of those beyond what is true."""
    import gradreg

    known = KNOWN[name](sigma)
    x = known.images(count, torch.Generator().manual_seed(seed)).float()
    found = gradreg.certify(known.model, x, sigma=sigma, seed=seed, batch_size=8192, **options)
    side, radius = known.truth(x)
    prediction, claimed = found.prediction.numpy(), found.radius.numpy()
    certified = prediction >= 0
    wrong = certified & ((prediction != side) | (claimed > radius + 1e-7))
    return int(certified.sum()), int(wrong.sum())
