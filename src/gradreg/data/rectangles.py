"""Evaluation on rectangular views: of a photograph that is wider than high the sides are not cut off.

The idea is fast.ai's, and the paper's ImageNet models were validated so in their last phase. There a batch takes the
mean shape of its images, in multiples of 8. Here an image's view depends on its own shape alone, so that results do not
change with the size of the batches or the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gradreg.data.batching import FolderBatches
from gradreg.data.decode import Decoder, opened, rectangle
from gradreg.data.folder import ImageFolder


class RectangularBatches(FolderBatches):
    """All images of a folder once, those with views of one shape together, from the tallest shape to the widest.

    Options are those of `FolderBatches` that do not concern training: size, workers, device, channels_last, rank and
    world. Batches need not be full, and a process may get none of a batch's images.
    """

    def __init__(self, folder: ImageFolder, batch_size: int, **options: Any) -> None:
        super().__init__(folder, batch_size, **options)

    @cached_property
    def groups(self) -> list[Tensor]:
        """Positions of the images of each batch of all processes together; the files' headers are read once."""
        found: dict[tuple[int, int], list[int]] = {}
        for position, path in enumerate(self.folder.paths):
            with opened(path) as image:
                found.setdefault(rectangle(*image.size, self.size), []).append(position)
        shapes = sorted(found, key=lambda shape: shape[0] / shape[1])
        return [
            part for shape in shapes for part in torch.tensor(found[shape], device="cpu").split(self.order.joint_size)
        ]

    def decoder(self) -> Decoder:
        return replace(super().decoder(), rectangular=True)

    def __len__(self) -> int:
        return len(self.groups)

    def joint_batches(self) -> Iterator[tuple[int, Tensor]]:
        yield from list(enumerate(self.groups))[self.first :]
