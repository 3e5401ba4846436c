"""Images from tensors or loaders, and the loss that the bounds are about."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor

from gradreg.classifier import Classifier
from gradreg.errors import ConfigError, DataError
from gradreg.losses import margin, probability_margin
from gradreg.penalty.passes import Criterion

Scores = Literal["probabilities", "logits"]
Data = tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]


def margin_loss(scores: Scores, topk: int) -> Criterion:
    """The modified Carlini-Wagner loss of §2.2: on probabilities as in the paper, or on logits."""
    if scores not in ("probabilities", "logits"):
        raise ConfigError(f"scores must be 'probabilities' or 'logits'; got {scores!r}.")
    return cast(Criterion, partial(probability_margin if scores == "probabilities" else margin, topk=topk))


def gather(data: Data, limit: int | None) -> tuple[Tensor, Tensor]:
    """The first `limit` images and labels of a pair of tensors or of a loader of such pairs."""
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Tensor) and isinstance(data[1], Tensor):
        return data[0][:limit], data[1][:limit]
    images: list[Tensor] = []
    labels: list[Tensor] = []
    held = 0
    for batch in data:
        if not (
            isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)
        ):
            raise DataError(f"The data must give pairs (images, labels) of tensors; got a {type(batch).__name__}.")
        images.append(cast(Tensor, batch[0]))
        labels.append(cast(Tensor, batch[1]))
        held += len(images[-1])
        if limit is not None and held >= limit:
            break
    if not images:
        raise DataError("The data holds no images: pass (images, labels), or a loader that gives such pairs.")
    return torch.cat(images)[:limit], torch.cat(labels)[:limit]


def check(classifier: Classifier, x: Tensor, y: Tensor) -> int:
    """Refuse bad images, labels or models at the cost of a few images; returns the number of classes.

    The images with the lowest and highest pixel and label stand for the others.
    """
    if x.ndim < 2 or len(x) == 0 or y.shape != (len(x),):
        return classifier.check(x, y).shape[1]
    flat = x.flatten(1)
    extremes = (flat.amin(1).argmin(), flat.amax(1).argmax(), y.argmin(), y.argmax())
    few = torch.tensor(sorted({int(row) for row in extremes}), device=x.device)
    return classifier.check(x[few], y[few]).shape[1]


def batches(images: int, size: int) -> Iterator[slice]:
    """The parts of that many images, `size` at a time."""
    if size < 1:
        raise ConfigError(f"batch_size must be at least 1; got {size}.")
    return (slice(start, start + size) for start in range(0, images, size))


def listed(images: Tensor, most: int = 5) -> str:
    """Which images, in words: "images 3, 8, 12, …"."""
    indices = images.nonzero().flatten().tolist()
    shown = ", ".join(map(str, indices[:most]))
    return f"image{'s' if len(indices) > 1 else ''} {shown}{', …' if len(indices) > most else ''}"
