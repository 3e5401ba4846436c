"""Whose gradient has led anywhere: where none does, attacks fail and the model looks robust."""

import torch
from torch import Tensor


class Guidance:
    """Per image, whether an attack has asked for its gradient, and whether one of them was finite and not zero."""

    def __init__(self, like: Tensor) -> None:
        self._asked = self._guided = torch.zeros_like(like, dtype=torch.bool)

    @property
    def blind(self) -> Tensor:
        """Images whose gradient was zero or not finite wherever an attack has asked for it."""
        return self._asked & ~self._guided

    def note(self, gradient: Tensor, rows: Tensor, searched: Tensor | None) -> None:
        """Take in the gradients of these images; what is not `searched` is of no interest."""
        size = gradient.flatten(1).abs().amax(1)
        asked = torch.ones_like(size, dtype=torch.bool) if searched is None else searched
        guided = asked & (size > 0) & size.isfinite()
        self._asked = self._asked.index_put((rows,), self._asked[rows] | asked)
        self._guided = self._guided.index_put((rows,), self._guided[rows] | guided)
