"""Whether the gradient turns between the base point and the point ahead: the first sign that a loss is bent."""

from dataclasses import dataclass

from torch import Tensor

from gradreg.errors import ConfigError
from gradreg.norms.tensors import euclidean, inner, scaled


@dataclass(frozen=True)
class Ahead:
    """∇ℓ at the base point, and the point ahead, where a backward leaves the other gradient."""

    gradient: Tensor
    z: Tensor
    found: Tensor | None
    """The gradient at z, where it did not have to wait for the backward of the loss."""

    def cosine(self) -> Tensor:
        """Of the angle between both gradients, per image; NaN where one is zero. Positive factors do not change it."""
        there = self.z.grad if self.found is None else self.found
        if there is None:
            raise ConfigError("alignment is known after the backward of the loss: call out.backward() first.")
        return inner(_unit(self.gradient), _unit(there))


def _unit(v: Tensor) -> Tensor:
    """v over its length, which is 0/0 = NaN for zero."""
    _, v = scaled(v)
    return v / euclidean(v)
