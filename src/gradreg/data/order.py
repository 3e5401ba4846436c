"""Which images make up which batch: a pure function of (seed, epoch, batch index), whatever the number of processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import AtMost, Count, Natural, check_integer
from gradreg.errors import ConfigError, DataError
from gradreg.randomness import generator


def holdout(count: int, n: int, seed: int, source: str) -> tuple[Tensor, Tensor]:
    """Positions kept and positions held out, each in their old order."""
    seed = check_integer("seed", seed, least=0)
    what = f"held_out, the number of held-out images of {source},"
    n = check_integer(what, n, least=1, most=count - 1, error=DataError)
    shuffled = torch.randperm(count, generator=generator("holdout", seed), device="cpu")
    return shuffled[n:].sort().values, shuffled[:n].sort().values


@dataclass(frozen=True)
class Order:
    """The batches of every epoch.

    Batch i of `world` processes with batches of `batch_size` is batch i of one process with batches of
    `world * batch_size`, cut into contiguous shares; this process gets share `rank`. Every process sees the
    same number of batches. A last batch that is not full is split as evenly as possible, which may leave a process
    without an image: use `drop_last` to train in several processes.
    """

    count: Natural
    batch_size: AtMost
    shuffle: bool = False
    seed: Natural = 0
    drop_last: bool = False
    rank: Natural = 0
    world: Count = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rank >= self.world:
            raise ConfigError(
                f"rank must lie between 0 and {self.world - 1} for {self.world} processes; got {self.rank}."
            )
        if self.drop_last and self.count < self.joint_size:
            raise ConfigError(
                f"{self.count} images do not fill one batch of {self.joint_size}, and an incomplete one is left out: "
                f"{self._way_out()}."
            )

    def _way_out(self) -> str:
        fitting = self.count // self.world
        return f"set batch_size to at most {fitting}" if fitting else f"pass at least {self.world} images"

    @property
    def joint_size(self) -> int:
        """Images in a full batch of all processes together."""
        return self.world * self.batch_size

    def __len__(self) -> int:
        return self.count // self.joint_size if self.drop_last else -(-self.count // self.joint_size)

    def epoch(self, epoch: int) -> Tensor:
        """All positions, in the order of this epoch."""
        if not self.shuffle:
            return torch.arange(self.count, device="cpu")
        return torch.randperm(self.count, generator=generator("order", self.seed, epoch), device="cpu")

    def share(self, size: int) -> slice:
        """Which part of a joint batch of `size` images belongs to this process."""
        return slice(size * self.rank // self.world, size * (self.rank + 1) // self.world)


class Epochs(ABC):
    """An iterable over the batches of one epoch at a time, as `(pixels in [0, 1], labels)`.

    Iterating twice gives the same batches twice; `set_epoch` moves on. `len` counts the batches of a whole epoch.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.epoch = 0
        self.first = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration runs through, from its first batch."""
        self.epoch, self.first = check_integer("epoch", epoch, least=0), 0

    def start(self, batch_index: int) -> None:
        """Let iterations of this epoch begin at a later batch; the earlier ones cost nothing."""
        self.first = check_integer("batch_index", batch_index, least=0, most=len(self))

    def __len__(self) -> int:
        return len(self.order)

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...

    def joint_batches(self) -> Iterator[tuple[int, Tensor]]:
        """Index and positions of each batch of all processes together, from the start batch on."""
        positions, size = self.order.epoch(self.epoch), self.order.joint_size
        for index in range(self.first, len(self)):
            yield index, positions[index * size : (index + 1) * size]

    def shares(self) -> list[Tensor]:
        """Positions of the images of each batch that this process gets."""
        return [joint[self.order.share(len(joint))] for _, joint in self.joint_batches()]
