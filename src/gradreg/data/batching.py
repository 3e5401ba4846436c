"""Batches for training and evaluation, reproducible from (seed, epoch, batch index) alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from gradreg.checks.calls import validated
from gradreg.checks.fields import conform
from gradreg.checks.scalars import Side, check_integer, check_names, check_number
from gradreg.data.augment import Spec, per_image, pipeline
from gradreg.data.decode import Decoder, need_pillow
from gradreg.data.folder import ImageFolder
from gradreg.data.images import Images, floats
from gradreg.data.order import Epochs, Order
from gradreg.data.tensors import TensorBatches, Tensors
from gradreg.errors import ConfigError, DataError
from gradreg.randomness import generator

_MOST_WORKERS = 1024


class Batches(Epochs):
    """Batches of images in memory; the bytes are moved to `device` once and augmented there."""

    @validated
    def __init__(
        self,
        images: Images,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        augment: Sequence[Spec] | None = None,
        drop_last: bool = False,
        device: torch.device | str | None = None,
        channels_last: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        super().__init__(Order(len(images), batch_size, shuffle, seed, drop_last, rank, world))
        self.pixels, self.labels = images.pixels.to(device), images.labels.to(device)
        self.steps = pipeline(augment)
        self.channels_last = channels_last

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        epoch, device = self.epoch, self.pixels.device
        for index, joint in self.joint_batches():
            share = self.order.share(len(joint))
            mine = joint[share].to(device, non_blocking=True)
            batch = self.pixels[mine]
            draw = per_image(generator("augment", self.order.seed, epoch, index), len(joint), share, device)
            for step in self.steps if len(mine) else ():  # a process may have no image of a batch
                batch = step(batch, draw)
            yield floats(batch, channels_last=self.channels_last), self.labels[mine]


class FolderBatches(Epochs):
    """Batches of an image folder, decoded in `workers` processes; an image's view depends on (seed, epoch, image).

    `augment` may name "crop" (a random resized crop of at least `min_scale` of the image) and "flip". Without "crop" an
    image is resized and cut at its centre, as for evaluation. Bytes, not floats, are moved to `device`.
    """

    @validated
    def __init__(
        self,
        folder: ImageFolder,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        augment: Sequence[str] | None = None,
        drop_last: bool = False,
        size: int | None = None,
        min_scale: float = 0.25,
        workers: int = 2,
        device: torch.device | str | None = None,
        channels_last: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        super().__init__(Order(len(folder), batch_size, shuffle, seed, drop_last, rank, world))
        need_pillow()
        names = check_names("augment", () if augment is None else augment)
        if unknown := [name for name in names if name not in ("crop", "flip")]:
            raise ConfigError(f"augment of an image folder must be 'crop' or 'flip'; got {unknown[0]!r}.")
        min_scale = check_number("min_scale", min_scale, above=0, most=1, usual="the least that a crop keeps")
        self.folder = folder
        self.size = folder.size if size is None else conform("size", size, Side)
        self.min_scale = min_scale if "crop" in names else None
        self.flip = "flip" in names
        self.workers = check_integer("workers", workers, least=0, ends=_MOST_WORKERS)
        self.device = torch.device("cpu" if device is None else device)
        self.channels_last = channels_last

    def decoder(self) -> Decoder:
        """How the workers decode a file in this epoch."""
        return Decoder(self.size, self.min_scale, self.flip, self.order.seed, self.epoch)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        shares = self.shares()
        paths = self.folder.paths
        loader = DataLoader(
            self.decoder(),
            batch_sampler=([(paths[i], i) for i in share.tolist()] for share in shares),
            num_workers=self.workers,
            collate_fn=_unchanged,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=_leave_signals_to_the_main_process,
            # The loader draws a seed for its workers, from the global generator unless it is given one.
            generator=torch.Generator(),
        )
        for share, pixels in zip(shares, loader, strict=True):
            if isinstance(pixels, str):
                raise DataError(pixels)
            moved = pixels.to(self.device, non_blocking=True)
            yield (
                floats(moved, channels_last=self.channels_last),
                self.folder.labels[share].to(self.device, non_blocking=True),
            )


@validated
def batches(part: Images | ImageFolder | Tensors, batch_size: int, **options: Any) -> Epochs:
    """`Batches`, `FolderBatches` or those of two tensors with the given options, depending on the part of the data."""
    if isinstance(part, Images):
        return Batches(part, batch_size, **options)
    if isinstance(part, Tensors):
        return TensorBatches(part, batch_size, **options)
    return FolderBatches(part, batch_size, **options)


def _unchanged(batch: Any) -> Any:
    return batch


def _leave_signals_to_the_main_process(worker: int) -> None:
    """Ctrl-C and torchrun's signals reach the workers too, and the main process needs them until it has saved."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
