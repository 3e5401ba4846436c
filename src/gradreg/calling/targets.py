"""Targets of any form: labels, soft labels, masks, or tables and tuples of them for a criterion of the user's own.

Every tensor in a target has one row per image. Anything else in it, such as the weight of a mixture, is passed on.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from gradreg.checks.scalars import shown
from gradreg.checks.tensors import check_dense
from gradreg.errors import ConfigError, DataError

Target = Any
"""A tensor with one row per image, or a mapping, tuple or list of such: the second argument of a criterion."""


SOFT = 1e-3
"""Soft labels of an image sum to 1 within this; multi-label targets do not."""


def check_targets(y: Target, images: int, name: str = "y") -> None:
    """Refuse targets that do not have one row per image, or no values."""
    for each in leaves(y):
        check_dense(name, each)
    if isinstance(y, Mapping | tuple | list):
        tensors = list(leaves(y))
        wrong = next((each for each in tensors if each.ndim == 0 or len(each) != images), None)
        if tensors and wrong is None:
            return
        got = "no tensor" if not tensors else f"one of shape {tuple(wrong.shape)}" if wrong is not None else ""
        raise DataError(f"{name} must hold tensors with one row per image, {images}; got {got}.")
    if not isinstance(y, Tensor) or y.ndim == 0 or len(y) != images:
        raise DataError(f"{name} must be a tensor with one label per image, {images}; got {shown(y)}.")


def leaves(y: Target) -> Iterator[Tensor]:
    """The tensors in a target."""
    if isinstance(y, Tensor):
        yield y
    elif isinstance(y, Mapping):
        for part in y.values():
            yield from leaves(part)
    elif isinstance(y, tuple | list):
        for part in y:
            yield from leaves(part)


def changed(y: Target, change: Callable[[Tensor], Tensor]) -> Target:
    """The target with every tensor changed."""
    if isinstance(y, Tensor):
        return change(y)
    if isinstance(y, Mapping):
        return {key: changed(part, change) for key, part in y.items()}
    if isinstance(y, tuple | list):
        parts = [changed(part, change) for part in y]
        if isinstance(y, list):
            return parts
        return type(y)(*parts) if hasattr(y, "_fields") else tuple(parts)
    return y


def tracked(y: Target) -> Target:
    """The target with copies of tensors that were made in inference mode, which autograd refuses to keep."""
    if not any(each.is_inference() for each in leaves(y)):
        return y
    return changed(y, lambda each: each.clone() if each.is_inference() else each)


def at(y: Target, rows: Tensor | slice) -> Target:
    """The targets of some of the images."""
    return changed(y, lambda each: each[rows])


def labels_in(y: Target, logits: Tensor) -> Tensor | None:
    """Labels where the target has them: as they are, or as the largest of soft labels; None for any other target."""
    if not isinstance(y, Tensor) or logits.ndim != 2:
        return None
    if y.ndim == 1 and not y.is_floating_point() and y.dtype != torch.bool:
        return y
    soft = y.shape == logits.shape and y.is_floating_point()
    return y.argmax(1) if soft and _sums_to_one(y) else None


def check_losses(losses: object, images: int) -> Tensor:
    """What a criterion returned: one loss per image, a real number."""
    if isinstance(losses, Tensor) and losses.shape == (images,):
        if losses.is_floating_point():
            return losses
        raise ConfigError(
            f"criterion must return losses of a floating dtype, which have gradients; got {losses.dtype}. Errors and "
            "other whole numbers have none: pass what is trained on."
        )
    if isinstance(losses, Tensor) and losses.ndim > 1 and len(losses) == images:
        raise ConfigError(
            f"criterion must return one loss per image, shape ({images},); got shape {tuple(losses.shape)}. Average "
            "all but the first dimension: criterion=lambda logits, y: your_criterion(logits, y).flatten(1).mean(1)."
        )
    got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else shown(losses)
    raise ConfigError(
        f"criterion must return one loss per image, shape ({images},); got {got}. Pass a criterion with "
        "reduction='none'."
    )


def _sums_to_one(y: Tensor) -> bool:
    """Of classes that exclude each other; multi-label targets do not."""
    return bool(((y.sum(1) - 1).abs() < SOFT).all())
