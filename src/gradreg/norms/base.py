"""The interface of a threat: six methods that define a norm, and what follows from them.

Every method works on a batch of images of any shape and returns one result per image. A radius is a number, or a tensor
with one radius per image.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from gradreg.norms.calls import guard
from gradreg.norms.halfspace import across
from gradreg.norms.identity import attributes, digest, slug
from gradreg.norms.projections import weighted_by_ascent
from gradreg.norms.tensors import inner, per_image
from gradreg.precision import at_least_single

__all__ = ["Radius", "Threat", "ThreatName", "per_image"]

ThreatName = Literal["l1", "l2", "linf"]
Radius = float | Tensor

# They say how a norm is written and where it is quoted, and are no part of what it is.
_SHOWN = ("symbol", "dual", "p", "usual_radii", "reach")


class Threat(ABC):
    """A norm ‖v‖ for perturbations, its dual ‖g‖_* = max ⟨g, v⟩ over ‖v‖ ≤ 1 for gradients, and its ball.

    A norm of your own defines `norm`, `dual_norm`, `ascent`, `project` and `sample`; `sample_surface` follows from
    `sample`. The same norm must hold for all images of a batch. `gradreg.norms.check` tests the methods against each
    other.
    """

    symbol: str
    """As written in tables: l∞. Default: the name of the class."""
    dual: str = "*"
    """The dual norm's index in formulas, as the 1 of ‖∇ℓ‖_1."""
    p: float | None = None
    """The p of lp, by which other libraries name the norm; None for any other norm."""
    usual_radii: tuple[float, ...] = ()
    """Radii to quote robust error at, unless the data set has its own; default: as long as the usual l2 ones."""
    reach: float | None = None
    """How far from an image its loss is sampled when regularity is estimated; default: as far as in l2."""
    _name: str = ""

    def __init_subclass__(cls, name: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        # A subclass of L2 is another norm than l2: names and symbols are not inherited.
        cls._name = name
        guard(cls)
        if "symbol" not in vars(cls):
            cls.symbol = cls.__name__

    @property
    def name(self) -> str:
        """What files and results call the norm: two norms of the same name are the same.

        It is made of the class and `parameters`, as "weighted-1f0c52aa": with other weights it is another norm.
        """
        return self._name or f"{slug(type(self).__name__)}-{digest(type(self), self.parameters())}"

    def parameters(self) -> Mapping[str, object]:
        """What tells this norm from others of its class; default: all attributes of the object and its class."""
        found = attributes(self, Threat)
        return {name: value for name, value in found.items() if name not in _SHOWN}

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

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        """A point of the ball's surface, per image, drawn by the cone measure: a point of the ball, pushed outwards.

        A part of the surface is as likely as the cone over it is large. That is its share of the area where all tangent
        planes are equally far from the centre, as for l1, l2, l∞ and `Pixelwise`, and not in general.
        """
        v = self.sample(like, 1.0, generator)
        length = per_image(self.norm(v), v)
        return (v / length.where(length > 0, 1) * per_image(radius, like)).to(like.dtype)

    # What follows is for attacks. A norm may know better ways; these need nothing but the methods above.

    def pull(self, g: Tensor) -> Tensor:
        """The gradient at the scale of the unit ball: its part along the steepest ascent d is d itself.

        Followed by `retract` it leads to the ball's highest point, where the gradient is normal to the surface. Steps
        along d itself would not, unless d is normal to the surface, as for l2 and l∞.
        """
        wide = at_least_single(g.dtype)
        d, slope = self.ascent(g).to(wide), self.dual_norm(g)
        # Divided first: one over the slope of a saturated model overflows.
        return (g / per_image(slope.where(slope > 0, 1), g) * per_image(inner(d, d), g)).to(g.dtype)

    def climb(self, g: Tensor) -> Tensor:
        """The direction that projected gradient ascent steps along."""
        return self.pull(g)

    def retract(self, v: Tensor, radius: Radius) -> Tensor:
        """A point of the ball of that radius for each point outside of it; points of the ball stay.

        Together with `pull` it must end at the ball's highest point. Default: the nearest point.
        """
        return self.project(v, radius)

    def nearest(self, normal: Tensor, need: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """A small v with ⟨normal, v⟩ ≥ need and lower ≤ v ≤ upper, which contain 0: across a hyperplane, in a box.

        The smallest one, except where walls are in the way of a norm that does not know how to go around them.
        Where the box does not reach the half-space, a point as near to it as was found; 0 for a zero normal.
        """
        return across(self, normal, need, lower, upper)

    @property
    def core(self) -> "Threat":
        """The norm of u = `to_core(v)` that this norm of v is: itself, unless it is a linear image of another one."""
        return self

    def to_core(self, v: Tensor) -> Tensor:
        """The coordinates u of a perturbation, in which steps of all pixels count alike."""
        return v

    def from_core(self, u: Tensor) -> Tensor:
        """The perturbation with these coordinates."""
        return u

    def gradient_to_core(self, g: Tensor) -> Tensor:
        """The gradient with respect to the coordinates."""
        return g

    def project_weighted(self, v: Tensor, weights: Tensor, radius: Radius) -> Tensor:
        """The nearest z with ‖weights · z‖ ≤ radius, in the Euclidean sense: the projection of `Weighted`."""
        return weighted_by_ascent(self, v, weights, radius)

    def __repr__(self) -> str:
        return f"threat({self.name!r})"


guard(Threat)
