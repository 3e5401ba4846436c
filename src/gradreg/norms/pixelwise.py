"""A norm of whole pixels: how far the colour of the most changed pixel moved."""

import torch
from torch import Tensor

from gradreg.checks.scalars import check_integer
from gradreg.errors import ConfigError
from gradreg.norms.base import Radius, Threat
from gradreg.norms.projections import ellipsoid
from gradreg.norms.tensors import per_image, scaled, uniform
from gradreg.precision import at_least_single


class Pixelwise(Threat):
    """max over pixels of the l2 norm of a pixel's colours; the dual is the sum over pixels of that l2 norm.

    Unlike l∞ it does not depend on the choice of colour axes. `axis` is the one that is taken together, the batch being
    axis 0. The ball is a product of balls, one per pixel.
    """

    symbol = "l2,∞"
    dual = "2,1"

    def __init__(self, axis: int = 1) -> None:
        self.axis = check_integer("axis", axis, least=1, usual="axis 0 is the batch")

    def norm(self, v: Tensor) -> Tensor:
        scale, unit = scaled(v)
        return scale.flatten() * self._colours(unit).flatten(1).amax(1)

    def dual_norm(self, g: Tensor) -> Tensor:
        scale, unit = scaled(g)
        return scale.flatten() * self._colours(unit).flatten(1).sum(1)

    def ascent(self, g: Tensor) -> Tensor:
        wide = g.to(at_least_single(g.dtype))
        # Each pixel in units of its own largest entry: far smaller ones than the image's largest must not vanish.
        largest = wide.abs().amax(self._axis(g), keepdim=True)
        unit = wide / largest.where(largest > 0, 1)
        length = self._colours(unit)
        return (unit / length.where(length > 0, 1)).to(g.dtype)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        wide = v.to(at_least_single(v.dtype))
        length, radius = self._colours(wide), per_image(radius, v)
        return (wide * (radius / length).where(length > radius, 1)).to(v.dtype)

    def project_weighted(self, v: Tensor, weights: Tensor, radius: Radius) -> Tensor:
        wide = v.to(at_least_single(v.dtype)).movedim(self._axis(v), -1)
        axes = weights.to(wide.device, wide.dtype).square().expand_as(v[0]).movedim(self._axis(v) - 1, -1)
        axes = axes.expand_as(wide).reshape(-1, wide.shape[-1])
        limit = per_image(radius, v).reshape(-1, *[1] * (v.ndim - 2)).expand(wide.shape[:-1]).reshape(-1)
        near = ellipsoid(wide.reshape(-1, wide.shape[-1]), axes, limit)
        return near.view(wide.shape).movedim(-1, self._axis(v)).to(v.dtype)

    def climb(self, g: Tensor) -> Tensor:
        return self.ascent(g)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        return self._draw(like, radius, generator, surface=False)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        """One pixel, drawn at random, on its sphere and the others in their balls: uniform by area as well."""
        return self._draw(like, radius, generator, surface=True)

    def _draw(self, like: Tensor, radius: Radius, generator: torch.Generator, surface: bool) -> Tensor:
        axis, wide = self._axis(like), at_least_single(like.dtype)
        normal = torch.empty_like(like, dtype=wide).normal_(generator=generator)
        luck = uniform(like.narrow(axis, 0, 1), generator)
        depth = luck ** (1 / like.shape[axis])
        if surface:
            chosen = uniform(luck, generator).flatten(1).argmax(1, keepdim=True)
            depth = depth.flatten(1).scatter(1, chosen, 1.0).view_as(luck)
        return (self.ascent(normal) * depth * per_image(radius, like)).to(like.dtype)

    def _colours(self, v: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(v, dim=self._axis(v), keepdim=True)
        return length

    def _axis(self, v: Tensor) -> int:
        if self.axis >= v.ndim:
            raise ConfigError(f"axis must be one of an image of shape {tuple(v.shape[1:])}; got {self.axis}.")
        return self.axis
