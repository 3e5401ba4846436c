"""Images from tensors or loaders."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from gradreg.checks.scalars import check_integer, shown
from gradreg.checks.tensors import check_batch, check_device, check_labels, check_rows
from gradreg.classifier import Classifier
from gradreg.data import pairs
from gradreg.errors import DataError, words_of
from gradreg.precision import at_least_single

Data = tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]] | Iterable[Mapping[str, Any]] | pairs.Rows


def gather(data: Data, limit: int | None, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """The first `limit` images and labels of a pair of tensors or arrays, of a loader, or of a data set by position.

    The batches of a loader are moved to the `device`; tensors are taken as they are.
    """
    if (found := pairs.tensors(data)) is not None:
        x, y = _rows(*found)
        return pairs.check_bytes(x[:limit]), y[:limit]
    if pairs.is_rows(data):
        total = pairs.count(data)
        x, y = _rows(*pairs.rows(data, range(total if limit is None else min(limit, total))))
        return pairs.check_bytes(x).to(device), y.to(device)
    if not isinstance(data, Iterable) or isinstance(data, Mapping | str) or getattr(data, "ndim", 1) == 0:
        raise DataError(
            f"The data must be (images, labels), or a loader that gives such pairs; got {_described(data)}."
        )
    images: list[Tensor] = []
    labels: list[Tensor] = []
    held = 0
    for x, y in pairs.batches(data):
        images.append(x.to(device))
        labels.append(y.to(device))
        held += len(images[-1])
        if limit is not None and held >= limit:
            break
    if not images:
        raise DataError("The data holds no images: pass (images, labels), or a loader that gives such pairs.")
    try:
        return pairs.check_bytes(torch.cat(images)[:limit]), torch.cat(labels)[:limit]
    except RuntimeError as error:
        raise DataError(f"All batches of the data must have images of one shape: {words_of(error)}.") from error


def _rows(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return check_rows("The images of the data", x), check_rows("The labels of the data", y)


def _described(data: object) -> str:
    """A data set of several parts is a mapping of them; one by its name is not loaded yet."""
    if isinstance(data, Mapping) and data:
        return f"parts {', '.join(map(str, list(data)[:5]))}: pass one of them"
    if isinstance(data, str):
        return f"{shown(data)}: load it, gradreg.data.load({shown(data)})"
    return shown(data)


def check(classifier: Classifier, x: Tensor, y: Tensor) -> tuple[int, Tensor, Tensor]:
    """Refuse bad images, labels or models at the cost of a few images; the number of classes, images, int64 labels.

    The images with the lowest and highest pixel and label stand for the others. Those of half precision are made
    single: points around them would be rounded otherwise.
    """
    y = check_labels(y, len(check_batch(x)))
    x = x.to(at_least_single(x.dtype))
    check_device("y", y, x)
    flat = x.flatten(1)
    extremes = torch.stack([flat.amin(1).argmin(), flat.amax(1).argmax(), y.argmin(), y.argmax()])
    few = torch.tensor(sorted(set(extremes.tolist())), device=x.device)
    return classifier.check(x[few], y[few]).shape[1], x, y


def batches(images: int, size: int) -> Iterator[slice]:
    """The parts of that many images, `size` at a time."""
    size = check_integer("batch_size", size, least=1)
    return (slice(start, start + size) for start in range(0, images, size))


def listed(images: Tensor, most: int = 5) -> str:
    """Which images, in words: "images 3, 8, 12, …"."""
    indices = images.nonzero().flatten().tolist()
    first = ", ".join(map(str, indices[:most]))
    return f"image{'s' if len(indices) > 1 else ''} {first}{', …' if len(indices) > most else ''}"
