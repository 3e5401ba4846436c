"""How often a model was asked about each image."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.errors import ConfigError


@dataclass(frozen=True)
class Queries:
    """Forwards and backwards spent on each image."""

    forwards: Tensor
    backwards: Tensor

    @classmethod
    def none(cls, images: int, device: torch.device) -> "Queries":
        """Counts that start at zero."""
        return cls(*torch.zeros(2, images, dtype=torch.int64, device=device).unbind())

    def count_forward(self, images: Tensor | None, rows: int) -> None:
        """One more forward for the image of each of the rows, or for all of them."""
        _add(self.forwards, images, rows)

    def count_backward(self, images: Tensor | None, rows: int) -> None:
        """One more backward, likewise."""
        _add(self.backwards, images, rows)


def _add(counts: Tensor, images: Tensor | None, rows: int) -> None:
    if images is None:
        if rows != len(counts):
            raise ConfigError(
                f"{rows} rows are not the {len(counts)} counted images: pass images=, the image of each row."
            )
        counts += 1
    else:
        # An image may be in several rows of one call, and each row counts.
        counts.index_add_(0, images, torch.ones_like(images, dtype=counts.dtype))
