"""l2, l∞ and l1."""

import math
from functools import partial

import torch
from torch import Tensor

from gradreg.norms.base import Radius, Threat
from gradreg.norms.halfspace import fill, monotone, stretch
from gradreg.norms.projections import diamond, ellipsoid
from gradreg.norms.tensors import euclidean, per_image, pixels, scaled, sum_of_absolutes, uniform
from gradreg.precision import at_least_single


class L2(Threat, name="l2"):
    """Euclidean distance, its own dual."""

    symbol = "l2"
    dual = "2"
    p = 2.0
    usual_radii = (0.25, 0.5, 1.0)
    reach = 2.0

    def norm(self, v: Tensor) -> Tensor:
        scale, unit = scaled(v)
        return scale.flatten() * euclidean(unit).flatten()

    def dual_norm(self, g: Tensor) -> Tensor:
        return self.norm(g)

    def ascent(self, g: Tensor) -> Tensor:
        _, unit = scaled(g)
        length = euclidean(unit)
        return (unit / length.where(length > 0, 1)).to(g.dtype)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        length, radius = per_image(self.norm(v), v), per_image(radius, v)
        return (v * (radius / length).where(length > radius, 1)).to(v.dtype)

    def pull(self, g: Tensor) -> Tensor:
        return self.ascent(g)

    def nearest(self, normal: Tensor, need: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        return monotone(normal, need, lower, upper, partial(stretch, equal=False))

    def project_weighted(self, v: Tensor, weights: Tensor, radius: Radius) -> Tensor:
        scale, unit = scaled(v)
        axes = weights.to(unit).square().expand_as(unit[0]).flatten()
        z = ellipsoid(unit.flatten(1), axes, (per_image(radius, unit) / scale).flatten())
        return (z.view_as(unit) * scale).to(v.dtype)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        inside = uniform(like.flatten(1)[:, 0], generator) ** (1 / like[0].numel())
        return self.sample_surface(like, per_image(radius, like).flatten() * inside, generator)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        normal = torch.empty_like(like, dtype=at_least_single(like.dtype)).normal_(generator=generator)
        return (self.ascent(normal) * per_image(radius, like)).to(like.dtype)


class Linf(Threat, name="linf"):
    """The largest change of a pixel; dual to the sum of absolute gradients."""

    symbol = "l∞"
    dual = "1"
    p = math.inf
    usual_radii = (2 / 255, 8 / 255)
    reach = 0.1

    def norm(self, v: Tensor) -> Tensor:
        return v.abs().amax(pixels(v)).to(at_least_single(v.dtype))

    def dual_norm(self, g: Tensor) -> Tensor:
        return sum_of_absolutes(g)

    def ascent(self, g: Tensor) -> Tensor:
        return g.sign()

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        radius = per_image(radius, v).to(v.dtype)
        return v.clamp(-radius, radius)

    def project_weighted(self, v: Tensor, weights: Tensor, radius: Radius) -> Tensor:
        limit = (per_image(radius, v) / weights.to(v.device, at_least_single(v.dtype))).to(v.dtype)
        return v.clamp(-limit, limit)

    def pull(self, g: Tensor) -> Tensor:
        size = per_image(g.flatten(1).abs().mean(1), g)
        return g / size.where(size > 0, 1)

    def climb(self, g: Tensor) -> Tensor:
        return self.ascent(g)

    def nearest(self, normal: Tensor, need: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        return monotone(normal, need, lower, upper, partial(stretch, equal=True))

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        return ((2 * uniform(like, generator) - 1) * per_image(radius, like)).to(like.dtype)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        # All faces of the cube have the same area: pick one (a pixel and its sign), then a uniform point of it.
        face = uniform(like, generator).flatten(1).argmax(1, keepdim=True)
        point = 2 * uniform(like, generator) - 1
        pushed = point.sign().where(point != 0, 1).flatten(1)
        on_face = point.flatten(1).scatter(1, face, pushed.gather(1, face)).view_as(like)
        return (on_face * per_image(radius, like)).to(like.dtype)


class L1(Threat, name="l1"):
    """The sum of all changes; dual to the largest gradient entry, so the steepest direction is a single pixel."""

    symbol = "l1"
    dual = "∞"
    p = 1.0
    usual_radii = (4.0, 12.0)
    reach = 40.0

    def norm(self, v: Tensor) -> Tensor:
        return sum_of_absolutes(v)

    def dual_norm(self, g: Tensor) -> Tensor:
        return g.abs().amax(pixels(g)).to(at_least_single(g.dtype))

    def ascent(self, g: Tensor) -> Tensor:
        flat = g.flatten(1)
        steepest = flat.abs().argmax(1, keepdim=True)
        return torch.zeros_like(flat).scatter(1, steepest, flat.gather(1, steepest).sign()).view_as(g)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        return self.project_weighted(v, torch.ones((), device=v.device), radius)

    def project_weighted(self, v: Tensor, weights: Tensor, radius: Radius) -> Tensor:
        wide = v.flatten(1).to(at_least_single(v.dtype))
        flat = weights.to(wide).expand_as(v[0]).flatten()
        return diamond(wide, flat, per_image(radius, v)).view_as(v).to(v.dtype)

    def nearest(self, normal: Tensor, need: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        return monotone(normal, need, lower, upper, fill)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        # d + 1 exponentials over their sum are uniform on the simplex; leaving the last one out gives the solid ball.
        slack = -torch.log1p(-uniform(like.flatten(1)[:, :1], generator))
        return self._spread(like, radius, generator, slack)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        return self._spread(like, radius, generator, torch.zeros((), device="cpu"))

    def _spread(self, like: Tensor, radius: Radius, generator: torch.Generator, slack: Tensor) -> Tensor:
        exponential = -torch.log1p(-uniform(like, generator))
        sign = (uniform(like, generator) - 0.5).sign()
        total = exponential.flatten(1).sum(1, keepdim=True) + slack.to(like.device)
        return (sign * exponential * per_image(radius, like) / per_image(total, like)).to(like.dtype)
