"""How far and where the boundary of the linearised model is, in the threat's norm."""

from torch import Tensor

from gradreg.norms import Threat, per_image
from gradreg.norms.tensors import inner

__all__ = ["inner", "linear_distance", "nearest", "rescale"]


def nearest(threat: Threat, normal: Tensor, offset: Tensor, origin: Tensor, low: float, high: float) -> Tensor:
    """The smallest δ, in the threat's norm, with ⟨normal, δ⟩ ≥ offset and origin + δ in the box: `Threat.nearest`."""
    return threat.nearest(normal, offset, low - origin, high - origin)


def linear_distance(threat: Threat, margin: Tensor, gradient: Tensor) -> Tensor:
    """|m| / ‖∇m‖_*: how far a linear model's boundary would be, without the box; inf for a zero gradient."""
    return margin.abs() / threat.dual_norm(gradient).to(margin.dtype)


def rescale(v: Tensor, size: Tensor, to: Tensor) -> Tensor:
    """`v`, whose norm is `size`, made to have norm `to`; 0 stays 0."""
    return (v * per_image((to / size).where(size > 0, 0), v)).to(v.dtype)
