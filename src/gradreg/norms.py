"""A threat: the norm that measures an attacker's perturbation, and what its geometry gives.

`threat("linf")` names the norm of the *attack*; penalties and bounds use its dual, so nobody has to remember that l∞
goes with l1. Every method works on a batch of images of any shape and returns one result per image. A radius is a
number, or a tensor with one radius per image.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from gradreg.checks.scalars import check_number, shown
from gradreg.errors import ConfigError, did_you_mean
from gradreg.precision import at_least_single

ThreatName = Literal["l1", "l2", "linf"]
Radius = float | Tensor


def threat(name: "ThreatName | Threat") -> "Threat":
    """The threat of that name; a Threat is returned unchanged."""
    if isinstance(name, Threat):
        return name
    if not isinstance(name, str) or name not in THREATS:
        raise ConfigError(
            f"threat must be one of {', '.join(THREATS)}, or a gradreg.norms.Threat; got {shown(name)}"
            f"{did_you_mean(name, THREATS)}."
        )
    return THREATS[name]


def robust_at(distance: Tensor, eps: float) -> Tensor:
    """Images whose nearest known adversarial image lies beyond ε: the one place where that is decided.

    In the precision of the distances: one of 8/255 exactly is not beyond 8/255, though as a double it is larger. A
    misclassified image has distance 0 and is robust nowhere.
    """
    return distance > torch.tensor(check_number("eps", eps, least=0), dtype=distance.dtype)


def per_image(values: Radius, like: Tensor) -> Tensor:
    """One number per image, shaped to multiply a batch of images."""
    dtype = at_least_single(like.dtype)
    if not isinstance(values, Tensor):
        # Made there: an accelerator waits for a number that is copied from the host.
        return torch.full([1] * like.ndim, values, dtype=dtype, device=like.device)
    return values.to(like.device, dtype).reshape(-1, *[1] * (like.ndim - 1))


class Threat(ABC):
    """A norm ‖v‖ for perturbations, its dual ‖g‖_* = max ⟨g, v⟩ over ‖v‖ ≤ 1 for gradients, and its ball."""

    name: ThreatName
    symbol: str
    """As written in tables: l∞."""
    dual: str
    """The dual norm's index in formulas, as the 1 of ‖∇ℓ‖_1."""
    p: float
    """The p of lp, by which other libraries name the norm."""
    usual_radii: tuple[float, ...]
    """Radii to quote robust error at, unless the data set has its own: the paper's and the leaderboards'."""
    reach: float
    """How far from an image its loss is sampled when regularity is estimated."""

    @property
    def usual_radius(self) -> float:
        """The radius to compare models at."""
        return self.usual_radii[1]

    @abstractmethod
    def norm(self, v: Tensor) -> Tensor:
        """‖v‖ per image: the distance, in pixel units."""

    @abstractmethod
    def dual_norm(self, g: Tensor) -> Tensor:
        """‖g‖_* per image: how fast a loss with gradient g can rise per unit of ‖v‖."""

    @abstractmethod
    def ascent(self, g: Tensor) -> Tensor:
        """The d with ‖d‖ = 1 and ⟨g, d⟩ = ‖g‖_*: steepest ascent. Zero for an image whose gradient is zero."""

    @abstractmethod
    def project(self, v: Tensor, radius: Radius) -> Tensor:
        """The nearest point (in the Euclidean sense) of the ball of that radius."""

    @abstractmethod
    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        """A point drawn uniformly from the ball, per image."""

    @abstractmethod
    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        """A point drawn uniformly from the ball's surface, per image."""

    def __repr__(self) -> str:
        return f"threat({self.name!r})"


class L2(Threat):
    """Euclidean distance, its own dual."""

    name = "l2"
    symbol = "l2"
    dual = "2"
    p = 2.0
    usual_radii = (0.25, 0.5, 1.0)
    reach = 2.0

    def norm(self, v: Tensor) -> Tensor:
        scale, unit = _scaled(v)
        return scale.flatten() * _euclidean(unit).flatten()

    def dual_norm(self, g: Tensor) -> Tensor:
        return self.norm(g)

    def ascent(self, g: Tensor) -> Tensor:
        _, unit = _scaled(g)
        length = _euclidean(unit)
        return (unit / length.where(length > 0, 1)).to(g.dtype)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        length, radius = per_image(self.norm(v), v), per_image(radius, v)
        return (v * (radius / length).where(length > radius, 1)).to(v.dtype)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        inside = _uniform(like.flatten(1)[:, 0], generator) ** (1 / like[0].numel())
        return self.sample_surface(like, per_image(radius, like).flatten() * inside, generator)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        normal = torch.empty_like(like, dtype=at_least_single(like.dtype)).normal_(generator=generator)
        return (self.ascent(normal) * per_image(radius, like)).to(like.dtype)


class Linf(Threat):
    """The largest change of a pixel; dual to the sum of absolute gradients."""

    name = "linf"
    symbol = "l∞"
    dual = "1"
    p = math.inf
    usual_radii = (2 / 255, 8 / 255)
    reach = 0.1

    def norm(self, v: Tensor) -> Tensor:
        return v.abs().amax(_pixels(v)).to(at_least_single(v.dtype))

    def dual_norm(self, g: Tensor) -> Tensor:
        return _sum_of_absolutes(g)

    def ascent(self, g: Tensor) -> Tensor:
        return g.sign()

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        radius = per_image(radius, v).to(v.dtype)
        return v.clamp(-radius, radius)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        return ((2 * _uniform(like, generator) - 1) * per_image(radius, like)).to(like.dtype)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        # All faces of the cube have the same area: pick one (a pixel and its sign), then a uniform point of it.
        face = _uniform(like, generator).flatten(1).argmax(1, keepdim=True)
        point = 2 * _uniform(like, generator) - 1
        pushed = point.sign().where(point != 0, 1).flatten(1)
        on_face = point.flatten(1).scatter(1, face, pushed.gather(1, face)).view_as(like)
        return (on_face * per_image(radius, like)).to(like.dtype)


class L1(Threat):
    """The sum of all changes; dual to the largest gradient entry, so the steepest direction is a single pixel."""

    name = "l1"
    symbol = "l1"
    dual = "∞"
    p = 1.0
    usual_radii = (4.0, 12.0)
    reach = 40.0

    def norm(self, v: Tensor) -> Tensor:
        return _sum_of_absolutes(v)

    def dual_norm(self, g: Tensor) -> Tensor:
        return g.abs().amax(_pixels(g)).to(at_least_single(g.dtype))

    def ascent(self, g: Tensor) -> Tensor:
        flat = g.flatten(1)
        steepest = flat.abs().argmax(1, keepdim=True)
        return torch.zeros_like(flat).scatter(1, steepest, flat.gather(1, steepest).sign()).view_as(g)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        """Soft thresholding at the θ for which the result has norm `radius` (Duchi et al. 2008), all images at once."""
        size = v.abs().flatten(1).to(at_least_single(v.dtype))
        radius = per_image(radius, v).reshape(-1, 1)
        descending = size.sort(dim=1, descending=True).values
        count = torch.arange(1, size.shape[1] + 1, device=v.device, dtype=size.dtype)
        thresholds = (descending.cumsum(1) - radius) / count
        # At radius 0 no entry passes its own threshold; the first one's threshold then removes everything.
        kept = (descending > thresholds).sum(1, keepdim=True).clamp(min=1)
        theta = thresholds.gather(1, kept - 1).clamp(min=0)
        shrunk = (size - theta).clamp(min=0).view_as(v) * v.sign()
        return shrunk.to(v.dtype)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        # d + 1 exponentials over their sum are uniform on the simplex; leaving the last one out gives the solid ball.
        slack = -torch.log1p(-_uniform(like.flatten(1)[:, :1], generator))
        return self._spread(like, radius, generator, slack)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        return self._spread(like, radius, generator, torch.zeros(()))

    def _spread(self, like: Tensor, radius: Radius, generator: torch.Generator, slack: Tensor) -> Tensor:
        exponential = -torch.log1p(-_uniform(like, generator))
        sign = (_uniform(like, generator) - 0.5).sign()
        total = exponential.flatten(1).sum(1, keepdim=True) + slack.to(like.device)
        return (sign * exponential * per_image(radius, like) / per_image(total, like)).to(like.dtype)


# In the order in which reports show them.
THREATS: dict[str, Threat] = {"linf": Linf(), "l2": L2(), "l1": L1()}


def _pixels(images: Tensor) -> tuple[int, ...]:
    if images.ndim < 2:
        raise ConfigError(f"Expected a batch of images of shape (N, …); got {tuple(images.shape)}. Add a batch axis.")
    return tuple(range(1, images.ndim))


def _scaled(v: Tensor) -> tuple[Tensor, Tensor]:
    """Each image's largest entry, and the image divided by it: squares then neither overflow nor vanish."""
    v = v.to(at_least_single(v.dtype))
    largest = v.detach().abs().amax(_pixels(v), keepdim=True)
    largest = largest.where(largest > 0, 1)
    return largest, v / largest


def _euclidean(v: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(v, dim=_pixels(v), keepdim=True)
    return length


def _sum_of_absolutes(v: Tensor) -> Tensor:
    return v.abs().sum(_pixels(v), dtype=at_least_single(v.dtype))


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.empty_like(like, dtype=at_least_single(like.dtype)).uniform_(generator=generator)
