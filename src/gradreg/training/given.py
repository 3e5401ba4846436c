"""What a user passes as data to train on, as training batches and held-out batches."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import TensorDataset

from gradreg.checks.scalars import shown
from gradreg.checks.tensors import check_dense
from gradreg.data import DataSet, ImageFolder, Images
from gradreg.data.pairs import Rows, is_rows, tensors
from gradreg.data.rows import images_of
from gradreg.data.tensors import Tensors
from gradreg.errors import ConfigError
from gradreg.processes import Processes
from gradreg.runs.settings import Settings
from gradreg.training.sources import Batch, loaders, loaders_of

Loader = Iterable[Batch] | Iterable[Mapping[str, Any]]
Array = Tensor | np.ndarray[Any, Any]
Part = Loader | Rows | tuple[Array, Array]
Data = DataSet | Images | ImageFolder | Rows | tuple[Array, Array] | tuple[Part, Part]


def batches_of(
    data: Data, settings: Settings, held_out: int, augment: tuple[Any, ...], processes: Processes
) -> tuple[Iterable[Batch], Iterable[Batch]]:
    """Training batches and held-out batches."""
    if isinstance(data, tuple) and len(data) != 2:
        raise ConfigError(f"data must be a pair (training batches, held-out batches); got a tuple of {len(data)}.")
    part = _in_memory(data.train if isinstance(data, DataSet) else data, augment)
    if isinstance(part, Images | ImageFolder | Tensors):
        return loaders(part, settings, processes, held_out, augment)
    if isinstance(part, tuple):
        kept, held = _in_memory(part[0], augment), _in_memory(part[1], ())
        return loaders_of(kept, held, settings, processes, augment)
    raise ConfigError(
        "data must be a data set of gradreg.data, (images, labels) or a pair (training batches, held-out batches); got "
        f"{_described(data)}. Held-out images pick the best epoch."
    )


def _described(data: object) -> str:
    """What was given in the place of data, and what to do with it."""
    if isinstance(data, str):
        return f"{shown(data)}: load it, gradreg.data.load({shown(data)})"
    if isinstance(data, Mapping) and data:
        return f"parts {', '.join(map(str, list(data)[:5]))}: pass one of them, or a pair of them"
    return f"a {type(data).__name__}"


def _in_memory(part: Any, augment: tuple[Any, ...]) -> Any:
    """Anybody's data set and (images, labels) as images that can be split and shuffled; anything else as it is."""
    if is_rows(part):
        return images_of(part, as_bytes=bool(augment))
    found = tensors(part)
    if found is None:
        return part
    for name, given in zip(("images", "labels"), found, strict=True):
        check_dense(f"The {name} of the data", given)
    # Augmentation is about bytes, which floats must be then.
    return images_of(TensorDataset(*found), as_bytes=True) if augment else Tensors(*found)
