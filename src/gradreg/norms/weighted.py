"""A norm in which some pixels or channels count more than others."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gradreg.errors import ConfigError
from gradreg.norms.base import Radius, Threat, ThreatName
from gradreg.norms.linear import LinearImage
from gradreg.norms.named import threat
from gradreg.norms.tensors import Placed, check_parameter


class Weighted(LinearImage):
    """‖w·v‖ in another norm: a pixel with weight 2 may be changed by half as much.

    `weights` are positive, in the shape of an image or one that broadcasts to it, as (3, 1, 1) for one weight per
    colour. Radii are those of the other norm, unless `usual_radii` are given.
    """

    def __init__(
        self,
        base: ThreatName | Threat,
        weights: Any,
        *,
        symbol: str | None = None,
        usual_radii: tuple[float, ...] | None = None,
        reach: float | None = None,
    ) -> None:
        other = threat(base)
        found = check_parameter("weights", weights)
        if not bool((found > 0).all()):
            raise ConfigError(
                f"weights must be positive, finite numbers; got {float(found.min()):g} to {float(found.max()):g}."
            )
        radii = other.usual_radii if usual_radii is None else usual_radii
        symbol = f"weighted {other.symbol}" if symbol is None else symbol
        super().__init__(other, symbol, radii, other.reach if reach is None else reach)
        self._weights = Placed(found.clone())

    @property
    def weights(self) -> Tensor:
        """In double precision, on the CPU."""
        return self._weights.tensor

    def parameters(self) -> Mapping[str, object]:
        return {"base": self.base, "weights": self.weights}

    def forward(self, v: Tensor) -> Tensor:
        return v * self._like(v)

    def backward(self, u: Tensor) -> Tensor:
        return u / self._like(u)

    def gradient(self, g: Tensor) -> Tensor:
        return g / self._like(g)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        return self.base.project_weighted(v, self._like(v), radius)

    def project_weighted(self, v: Tensor, weights: Tensor, radius: Radius) -> Tensor:
        return self.base.project_weighted(v, self._like(v) * weights, radius)

    def nearest(self, normal: Tensor, need: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        # A box stays a box when pixels are stretched.
        there = self.base.nearest(self.gradient(normal), need, self.forward(lower), self.forward(upper))
        return self.backward(there).to(normal.dtype)

    def _like(self, v: Tensor) -> Tensor:
        shape, own = tuple(v.shape[1:]), tuple(self.weights.shape)
        sizes = zip(reversed(own), reversed(shape), strict=False)
        if len(own) > len(shape) or any(one not in (1, size) for one, size in sizes):
            raise ConfigError(
                f"weights must have the shape of an image, {shape}, or one that broadcasts to it; got {own}."
            )
        return self._weights.like(v)
