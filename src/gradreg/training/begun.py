"""What a run was begun with besides its settings: data, layers and functions. It is resumed with the same.

Fingerprints are of what is cheap to read and telling, since a pass over a large image folder would make resuming slow:
numbers, labels, and a few images at fixed positions.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from gradreg.codec import join
from gradreg.data import Batches, FolderBatches, ImageFolder
from gradreg.data.asking import failing, length
from gradreg.data.pairs import Rows, is_rows
from gradreg.data.tensors import TensorBatches
from gradreg.defaults import callers_default
from gradreg.fingerprints import code_key, model_key, tensor_key
from gradreg.ledger import check_same
from gradreg.losses import cross_entropy
from gradreg.reading import opened
from gradreg.storage import checksum
from gradreg.training.measure import Measure
from gradreg.training.sources import Source

_FEW = 8
_PART_OF_A_FILE = 1 << 20
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

Begun = Mapping[str, str]
"""Fingerprints by the name of what they are of."""


def check_begun(folder: Path, noted: object, now: Begun) -> None:
    """Refuse other data, layers or functions, as far as a checkpoint notes what the run was begun with."""
    before = join(Mapping[str, str], noted, {}, "begun")
    both = before.keys() & now.keys()
    check_same(folder, {name: before[name] for name in both}, {name: now[name] for name in both})


def data_of(source: Source, *, alone: bool) -> Begun:
    """Of the images that are trained on, and of the held-out ones; `alone`: there is no other process."""
    return {
        "data": checksum([_of_loader(part.train, alone) for part in source.parts]),
        "held-out data": checksum([_of_loader(part.held_out, alone) for part in source.parts]),
    }


def code_of(model: nn.Module, measure: Measure, augment: Sequence[Any]) -> Begun:
    """Of what a user's program passes to `fit` and no recipe holds."""
    criterion = None if measure.criterion is cross_entropy else measure.criterion
    functions = {"criterion": criterion, "output": measure.output, "score": measure.score}
    return {
        "layers": checksum(_ADDRESS.sub("", repr(model))),
        "augment": checksum(_ADDRESS.sub("", repr(tuple(augment)))),
        **{name: _of_function(function) for name, function in functions.items()},
    }


def _of_loader(loader: Iterable[Any], alone: bool) -> Any:
    if isinstance(loader, FolderBatches):
        return _of_files(loader.folder)
    if isinstance(loader, Batches):
        return [len(loader.pixels), tensor_key(loader.labels), tensor_key(_at_fixed_positions(loader.pixels))]
    if isinstance(loader, TensorBatches):
        return [len(loader.x), tensor_key(_at_fixed_positions(loader.y)), tensor_key(_at_fixed_positions(loader.x))]
    said = length(loader)
    if not alone:  # each process has its own part of the images, and another number of them has other parts
        return [said]
    if isinstance(loader, list | tuple):
        return [said, *(_told(loader[i]) for i in _positions(len(loader)))]
    rows = _rows_of(loader)
    return [said] if rows is None else [said, *_of_rows(rows)]


def _of_files(folder: ImageFolder) -> Any:
    """Names without their folders, which may have moved, and the content of a few files."""
    names = checksum([path.replace("\\", "/").rpartition("/")[2] for path in folder.paths])
    few = [_beginning(folder.paths[i]) for i in _positions(len(folder))]
    return [len(folder), list(folder.classes), tensor_key(folder.labels), names, few]


def _beginning(path: str) -> str:
    with opened(path) as file:
        return checksum(file.read(_PART_OF_A_FILE).hex())


def _rows_of(loader: object) -> Rows | None:
    """The data set that a loader asks for images by whole numbers: with samplers of torch, one by one."""
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return None
    data: Any = loader.dataset
    usual = type(loader.sampler).__module__.startswith("torch.") and not isinstance(data, IterableDataset)
    return data if usual and is_rows(data) else None


def _of_rows(data: Rows) -> list[Any]:
    """The number of its images, and of a few what does not depend on chance: a random transform is left out."""
    once, again = (_asked(data, seed) for seed in (0, 1))
    return [len(data), *(one if one == other else None for one, other in zip(once, again, strict=True))]


def _asked(data: Rows, seed: int) -> list[Any]:
    """What the rows hold, place by place: images, labels, whatever else."""
    with _seeded(seed), callers_default():
        rows = []
        for position in _positions(len(data)):
            with failing(f"image {position}"):
                rows.append(_told(data[position]))
    return [list(column) for column in zip(*rows, strict=True)] if len({*map(len, rows)}) == 1 else [rows]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """All generators that transforms draw from, put back afterwards."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def _told(entry: Any) -> list[Any]:
    """What an image with its label, or a batch, holds: one value for each part, in their order."""
    if isinstance(entry, Mapping):
        return [[str(name), _told(part)] for name, part in entry.items()]
    if isinstance(entry, list | tuple):
        return [_told(part) for part in entry]
    if isinstance(entry, Tensor):
        return [tensor_key(entry[:_FEW] if entry.ndim else entry)]
    if isinstance(entry, np.ndarray | np.generic) or (hasattr(entry, "convert") and hasattr(entry, "tobytes")):
        return [checksum(np.asarray(entry)[:_FEW].tobytes().hex() if np.ndim(entry) else repr(entry))]
    return [repr(entry) if isinstance(entry, str | int | float | bytes | None) else type(entry).__name__]


def _of_function(function: Callable[..., Any] | None) -> str:
    if isinstance(function, nn.Module):
        return model_key(function)
    if isinstance(function, partial):
        return checksum([_of_function(function.func), _told(function.args), _told(function.keywords)])
    return "" if function is None else code_key(function)


def _at_fixed_positions(values: Tensor) -> Tensor:
    """All labels; of anything larger a few rows."""
    return values if values.ndim == 1 else values[torch.tensor(_positions(len(values)), device=values.device)]


def _positions(count: int) -> list[int]:
    """A few positions, from the first to the last."""
    return sorted({i * (count - 1) // max(1, _FEW - 1) for i in range(_FEW)}) if count else []
