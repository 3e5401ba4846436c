"""The batches of a run: which loaders serve which epoch, and how any loader is made repeatable."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from gradreg.calling.targets import Target, leaves
from gradreg.checks.tensors import check_pixels
from gradreg.data import ImageFolder, Images, RectangularBatches, batches, load
from gradreg.data.asking import entries, failing, length
from gradreg.data.order import Epochs
from gradreg.data.pairs import batch, pair, targets
from gradreg.data.tensors import Tensors
from gradreg.defaults import callers_default
from gradreg.errors import ConfigError, DataError, warn
from gradreg.processes import Processes
from gradreg.randomness import generator
from gradreg.runs.settings import Config, Settings

Batch = tuple[Tensor, Target]
_NumberedBatch = tuple[Tensor, Target, Tensor]

_HELD_OUT_BATCH = 250
# Held-out batches of a loader that does not say how many: beyond it, it is taken for one without end.
_MOST_HELD_OUT = 10_000


def reseed(*key: int) -> None:
    """Seed torch's global generators (dropout, a user's own augmentation) by `key` alone."""
    torch.manual_seed(generator("global", *key).initial_seed())


@dataclass(frozen=True)
class Loaders:
    """Training and held-out batches from an epoch on."""

    start: int
    train: Iterable[Batch]
    held_out: Iterable[Batch]


class Source:
    """Batches by epoch and position. Skipping batches is free with gradreg's loaders; other loaders are iterated."""

    def __init__(
        self, parts: Sequence[Loaders], seed: int, device: torch.device, kind: torch.dtype | None = None
    ) -> None:
        """`kind`: what images are cast to; as they are by default."""
        self.parts, self.seed, self.device, self.kind = parts, seed, device, kind
        for part in parts:
            steps = length(part.train)
            if not steps:
                given = f"a {type(part.train).__name__} without one" if steps is None else "no batches"
                raise DataError(f"The training batches must have a length, which schedules need; got {given}.")
            if length(part.held_out) == 0:
                raise DataError("The held-out batches must hold images, which pick the best epoch; got no batches.")
            if isinstance(part.held_out, Iterator):
                raise DataError(
                    "The held-out batches must be there in every epoch; got an iterator, which ends with the first: "
                    "pass a list of its batches."
                )

    def steps(self, epoch: int) -> int:
        """The number of batches in an epoch."""
        return length(self._part(epoch).train) or 0

    def batches(self, epoch: int, first: int) -> Iterator[Batch]:
        """The batches of an epoch, from number `first` on."""
        loader: Any = self._part(epoch).train
        if isinstance(loader, Epochs):
            loader.set_epoch(epoch)
            loader.start(first)
            yield from map(self._moved, loader)
            return
        sampler: Any = getattr(loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        number, said = first, self.steps(epoch)
        for number, entry in enumerate(islice(self._seeded(loader, epoch), first, None), first + 1):
            if number > said:  # of a loader without end, too
                break
            yield self._moved(entry, "The training batches")
        _check_length(number, said, nothing=number == first)

    def held_out(self, epoch: int, processes: Processes) -> Iterator[_NumberedBatch]:
        """The held-out batches that go with an epoch, with each image's number among all held-out ones."""
        loader, done = self._part(epoch).held_out, 0
        shares = iter(loader.shares()) if isinstance(loader, Epochs) else None
        for entry in loader if isinstance(loader, Epochs) else entries(loader, _MOST_HELD_OUT):
            x, y = self._moved(entry, "The held-out batches" if shares is None else "")
            # With a loader that is not gradreg's, each process is assumed to have its own part of the images.
            own = (done + torch.arange(len(x))) * processes.world + processes.rank
            done += len(x)
            numbers = own if shares is None else next(shares)
            yield x, y, numbers
        if not done and processes.world == 1:
            raise DataError(f"The held-out batches must hold images in every epoch; got none in epoch {epoch + 1}.")

    def _moved(self, entry: object, name: str = "") -> Batch:
        """The images and targets of a batch, a pair or a mapping, on the device; of a user's loader, by its name."""
        x, y = pair(entry, "A loader")
        x = batch(x)
        y = targets(y, self.device)
        if name:
            _check(x, y, name)
        return x.to(self.device, self.kind, non_blocking=True), y

    def _part(self, epoch: int) -> Loaders:
        return [part for part in self.parts if part.start <= epoch][-1]

    def _seeded(self, loader: Iterable[Batch], epoch: int) -> Iterator[Batch]:
        """A loader that draws from the global generators, made a function of (seed, epoch, batch)."""
        reseed(self.seed, epoch)
        with failing(f"the beginning of epoch {epoch + 1}"), callers_default():
            iterator, number = iter(loader), 0
        while True:
            reseed(self.seed, epoch, number)
            with failing(f"batch {number + 1} of epoch {epoch + 1}"):
                try:
                    with callers_default():
                        batch = next(iterator)
                except StopIteration:
                    return
            yield batch
            number += 1


def _check(x: Tensor, y: Target, name: str) -> None:
    """Refuse an empty batch, an image that is none of a batch, and wrong pixels, as far as they are on the host."""
    if x.ndim == 0 or any(part.ndim == 0 for part in leaves(y)):
        raise DataError(
            f"{name} must be batches with a row per image; got targets of shape () for images of shape "
            f"{tuple(x.shape)}: a DataLoader with batch_size=None gives single images."
        )
    if len(x) == 0:
        raise DataError(f"{name} must hold one image or more each; got an empty batch of shape {tuple(x.shape)}.")
    check_pixels(x, f"{name} of fit")


def _check_length(number: int, said: int, *, nothing: bool) -> None:
    """Refuse a user's loader that gives nothing any more, and warn of one that gives fewer or more than it said."""
    if nothing and number < said:
        raise DataError(
            f"The training batches must be {said} in every epoch, which is their length; got none: pass a loader that "
            "can be iterated again."
        )
    if number > said:
        warn(
            f"The training batches were more than {said}, their length, where an epoch ends: the others are left out, "
            "since schedules of the learning rate and ramps go by the length."
        )
    if number < said:
        warn(
            f"The training batches were {number}, and their length is {said}: schedules of the learning rate and ramps "
            "go by the length."
        )


def from_config(config: Config, processes: Processes, data_dir: str | None) -> tuple[Source, "_Shape"]:
    """The loaders of every phase of a recipe, and what the network must fit."""
    starts = sorted({0, *(phase.start for phase in config.phases)})
    sets: dict[str, Images | ImageFolder] = {}
    parts = []
    for start in starts:
        now = config.during(start)
        if now.data not in sets:  # listing a large folder takes a while
            sets[now.data] = load(now.data, data_dir).train
        if now.size is not None and isinstance(sets[now.data], Images):
            raise ConfigError(
                f"size must not be set for {now.data}, since only image folders are resized; got {now.size}."
            )
        if now.rectangular and isinstance(sets[now.data], Images):
            raise ConfigError(f"rectangular must be false for {now.data}, whose images all have one shape; got true.")
        folder = _FolderOptions(now.size, min(now.workers, _processors()), now.min_scale, now.rectangular)
        parts.append(Loaders(start, *loaders(sets[now.data], now, processes, now.held_out, now.augment, folder)))
    first = sets[config.during(0).data]
    channels = first.pixels.shape[1] if isinstance(first, Images) else 3
    return Source(parts, config.seed, processes.device), _Shape(len(first.classes), channels)


@dataclass(frozen=True)
class _Shape:
    """What the network must fit: the number of classes and of image channels."""

    classes: int
    channels: int


@dataclass(frozen=True)
class _FolderOptions:
    """Options of image folders: image size, decoding processes, smallest crop, shape of held-out images."""

    size: int | None = None
    workers: int = 2
    min_scale: float = 0.25
    rectangular: bool = False


def loaders(
    part: Images | ImageFolder | Tensors,
    settings: Settings,
    processes: Processes,
    held_out: int,
    augment: Sequence[Any],
    folder: _FolderOptions | None = None,
) -> tuple[Iterable[Any], Iterable[Any]]:
    """Training batches and held-out batches, of one part of a data set."""
    kept, held = part.split(held_out, settings.seed)
    return loaders_of(kept, held, settings, processes, augment, folder)


def loaders_of(
    kept: Images | ImageFolder | Tensors | Iterable[Any],
    held: Images | ImageFolder | Tensors | Iterable[Any],
    settings: Settings,
    processes: Processes,
    augment: Sequence[Any] = (),
    folder: _FolderOptions | None = None,
) -> tuple[Iterable[Any], Iterable[Any]]:
    """Batches of the images that are trained on, and of the held-out ones; loaders are returned as they are."""
    folder = folder or _FolderOptions()
    common: dict[str, Any] = {
        "device": processes.device,
        "channels_last": settings.channels_last,
        "rank": processes.rank,
        "world": processes.world,
    }
    in_training: dict[str, Any] = {"shuffle": True, "seed": settings.seed, "augment": augment, "drop_last": True}
    if isinstance(kept, ImageFolder):
        common |= {"size": folder.size, "workers": folder.workers}
        in_training["min_scale"] = folder.min_scale
    if isinstance(kept, Tensors):
        del in_training["augment"]
    if isinstance(kept, Images | ImageFolder | Tensors):
        size = _share(settings.batch_size, settings.accumulate, processes)
        kept = batches(kept, size, **common, **in_training)
    if isinstance(held, Images | ImageFolder | Tensors):
        share = -(-min(_HELD_OUT_BATCH, len(held)) // processes.world)
        if isinstance(held, ImageFolder) and folder.rectangular:
            return kept, RectangularBatches(held, share, **common)
        held = batches(held, share, **common)
    return kept, held


def _processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _share(batch_size: int, accumulate: int, processes: Processes) -> int:
    """Images per update and process."""
    if batch_size % (processes.world * accumulate):
        raise ConfigError(
            f"batch_size must be divisible by processes × accumulate = {processes.world} × {accumulate}; "
            f"got {batch_size}."
        )
    return batch_size // processes.world
