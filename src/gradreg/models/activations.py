"""Activations by name.

The penalty is a derivative of the network, so training needs the derivative of that derivative. ReLU has none: the
penalty then moves only through which units are on. The smooth ones train better under a gradient penalty, and a
curvature bound means something for them alone.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from gradreg.models.checks import unknown

# Sharp enough to sit no further from ReLU than c2relu does (ln 2 / 8 = 0.087 at 0, where c2relu is 0.094), with a
# largest second derivative of 8 / 4 = 2 (c2relu: 1.5, GELU: 0.8). torch's own beta of 1 is 0.69 above ReLU at 0.
_SOFTPLUS_BETA = 8.0


def c2relu(x: Tensor) -> Tensor:
    """The authors' twice differentiable ReLU: max(z³ − z⁴/2, relu(x)) with z = relu(x + 1/2).

    It is 0 up to −1/2, x from 1/2 on, and in between its slope is the smooth step 3z² − 2z³. Written piece by piece
    because the maximum would have to break a tie at both joints; unlike the authors' it leaves its argument alone.
    """
    z = (x + 0.5).clamp(0, 1)
    return torch.where(x < 0.5, z * z * z * (1 - z / 2), x)


class C2ReLU(nn.Module):
    """`c2relu` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """The activation of every element."""
        return c2relu(x)


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "c2relu": C2ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": partial(nn.Softplus, beta=_SOFTPLUS_BETA),
}

ACTIVATIONS = tuple(_ACTIVATIONS)


def activation(name: str) -> Callable[[], nn.Module]:
    """What makes a fresh layer of that name: relu, c2relu, gelu, silu or softplus. All but relu are C²."""
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS)
    return _ACTIVATIONS[name]
