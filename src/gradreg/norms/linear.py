"""Norms that are another norm of transformed pixels: ‖v‖ = ‖Av‖ in the other norm, for an invertible A.

Their ball is the linear image A⁻¹B of the other ball B, so everything but the Euclidean projection carries over.
Uniform samples of B become uniform samples, since a linear map changes all volumes by one factor.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from gradreg.checks.fields import conform
from gradreg.checks.objects import check_text
from gradreg.checks.scalars import Positive
from gradreg.norms.base import Radius, Threat
from gradreg.norms.tensors import scaled
from gradreg.precision import at_least_single


class LinearImage(Threat):
    """A norm of u = Av; subclasses say what A is, and how to project."""

    def __init__(self, base: Threat, symbol: str, usual_radii: tuple[float, ...] | None, reach: float | None) -> None:
        self.base, self.symbol = base, check_text("symbol", symbol)
        self.usual_radii = conform("usual_radii", () if usual_radii is None else usual_radii, tuple[Positive, ...])
        self.reach = conform("reach", reach, Positive | None)

    @property
    def core(self) -> Threat:
        return self.base.core

    @abstractmethod
    def forward(self, v: Tensor) -> Tensor:
        """Av, at least in single precision."""

    @abstractmethod
    def backward(self, u: Tensor) -> Tensor:
        """A⁻¹u, at least in single precision."""

    @abstractmethod
    def gradient(self, g: Tensor) -> Tensor:
        """A⁻ᵀg: the gradient with respect to u."""

    def to_core(self, v: Tensor) -> Tensor:
        return self.base.to_core(self.forward(v))

    def from_core(self, u: Tensor) -> Tensor:
        return self.backward(self.base.from_core(u))

    def gradient_to_core(self, g: Tensor) -> Tensor:
        return self.base.gradient_to_core(self.gradient(g))

    def norm(self, v: Tensor) -> Tensor:
        return self.base.norm(self.forward(v))

    def dual_norm(self, g: Tensor) -> Tensor:
        return self.base.dual_norm(self.gradient(g))

    def ascent(self, g: Tensor) -> Tensor:
        # A tiny gradient must not vanish when it is transformed twice.
        return self.backward(self.base.ascent(self.gradient(scaled(g)[1]))).to(g.dtype)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        wide = like.to(at_least_single(like.dtype))
        return self.backward(self.base.sample(wide, radius, generator)).to(like.dtype)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        """By the cone measure, which a linear map keeps; the area of the surface is distributed otherwise."""
        wide = like.to(at_least_single(like.dtype))
        return self.backward(self.base.sample_surface(wide, radius, generator)).to(like.dtype)

    def pull(self, g: Tensor) -> Tensor:
        return self.backward(self.base.pull(self.gradient(g))).to(g.dtype)

    def climb(self, g: Tensor) -> Tensor:
        return self.backward(self.base.climb(self.gradient(g))).to(g.dtype)

    def retract(self, v: Tensor, radius: Radius) -> Tensor:
        """The point that is the nearest one for u, which `pull` and `climb` are made for."""
        return self.backward(self.base.retract(self.forward(v), radius)).to(v.dtype)
