"""Images and targets in two tensors, taken as they are: floats of any shape, and targets of any form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.checks.calls import validated
from gradreg.checks.tensors import check_batch
from gradreg.data.order import Epochs, Order, holdout
from gradreg.errors import DataError


@dataclass(frozen=True, eq=False)
class Tensors:
    """Images as floats in [0, 1], and one target per image: a label, or whatever a criterion takes."""

    x: Tensor
    y: Tensor
    source: str = "the data"

    def __post_init__(self) -> None:
        check_batch(self.x, "The images of the data")
        if self.y.ndim == 0 or len(self.y) != len(self.x):
            raise DataError(
                f"The data must have one target per image; got targets of shape {tuple(self.y.shape)} for {len(self)} "
                "images."
            )

    def __len__(self) -> int:
        return len(self.x)

    def split(self, n: int, seed: int) -> tuple[Tensors, Tensors]:
        """The images that remain when n are held out at random, and the held-out ones."""
        kept, held = holdout(len(self), n, seed, self.source)
        return self._at(kept), self._at(held)

    def _at(self, rows: Tensor) -> Tensors:
        return Tensors(self.x[rows.to(self.x.device)], self.y[rows.to(self.y.device)])


class TensorBatches(Epochs):
    """Batches of two tensors, moved to `device` once."""

    @validated
    def __init__(
        self,
        part: Tensors,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        device: torch.device | str | None = None,
        channels_last: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        super().__init__(Order(len(part), batch_size, shuffle, seed, drop_last, rank, world))
        layout = torch.channels_last if channels_last and part.x.ndim == 4 else torch.contiguous_format
        self.x, self.y = part.x.to(device, memory_format=layout), part.y.to(device)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for share in self.shares():
            rows = share.to(self.x.device, non_blocking=True)
            yield self.x[rows], self.y[rows]
