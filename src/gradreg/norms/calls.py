"""The methods of a norm as users call them: what they are given is checked, and then they are run.

Attacks and penalties call them in every step with tensors of their own, where a check would cost a look at the device:
what is called from within gradreg is run as it is, and so is whatever that calls. No norm is run on no images, of which
`v.view(len(v), -1)` makes an error.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from gradreg.checks.calls import is_called_by_gradreg
from gradreg.checks.objects import check_kind
from gradreg.checks.scalars import check_number, shown
from gradreg.checks.tensors import check_dense, check_width, on_host
from gradreg.errors import ConfigError
from gradreg.precision import at_least_single

_LENGTHS = ("norm", "dual_norm")
# What each takes, by the kinds of its arguments.
_METHODS = {
    **dict.fromkeys(("norm", "dual_norm", "ascent", "pull", "climb"), ("batch",)),
    **dict.fromkeys(("project", "retract"), ("batch", "radius")),
    **dict.fromkeys(("sample", "sample_surface"), ("like", "radius", "generator")),
    "nearest": ("batch", "column", "below", "above"),
    "project_weighted": ("batch", "weights", "radius"),
}
_WITHIN = ContextVar("within", default=False)


def guard(cls: type) -> None:
    """Check the arguments of the methods that a class defines."""
    for name, kinds in _METHODS.items():
        if name in vars(cls):
            setattr(cls, name, _guarded(vars(cls)[name], kinds))


def _guarded(method: Callable[..., Any], kinds: tuple[str, ...]) -> Callable[..., Any]:
    names = tuple(signature(method).parameters)[1 : len(kinds) + 1]

    @wraps(method)
    def checked(self: Any, *args: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling() or _WITHIN.get():
            return method(self, *args, **keywords)
        if is_called_by_gradreg():
            if args and isinstance(args[0], Tensor) and len(args[0]) == 0:
                return _of_none(method.__name__, args[0])
        else:
            given = dict(zip(names, args, strict=False)) | keywords
            if all(name in given for name in names):  # else Python says what is missing
                for name, kind in zip(names, kinds, strict=True):
                    _check_kind_of_tensor(name, given[name])
                    _CHECKS[kind](name, given[name], given[names[0]])
        token = _WITHIN.set(True)
        try:
            return method(self, *args, **keywords)
        finally:
            _WITHIN.reset(token)

    return checked


def _of_none(name: str, batch: Tensor) -> Tensor:
    """What a method returns for no images: attacks need not know which norms can be asked about none."""
    return batch.new_empty(0, dtype=at_least_single(batch.dtype)) if name in _LENGTHS else batch.clone()


def _check_kind_of_tensor(name: str, value: Any) -> None:
    if isinstance(value, Tensor):
        check_dense(name, value, ConfigError)
        check_width(name, value, ConfigError)


def _check_like(name: str, value: Any, _: Any) -> None:
    right = isinstance(value, Tensor) and value.is_floating_point() and value.ndim >= 2
    if not right or value.numel() == 0:
        raise ConfigError(f"{name} must be a float batch of shape (N, …); got {shown(value)}. Add a batch axis.")


def _check_batch(name: str, value: Any, _: Any) -> None:
    _check_like(name, value, value)
    if on_host(value) and not bool(value.isfinite().all()):
        raise ConfigError(f"{name} must be finite; got NaN or inf in some of its {len(value)} images.")


def _check_radius(name: str, value: Any, batch: Tensor) -> None:
    if not isinstance(value, Tensor) or value.numel() == 1 != len(batch):
        next_to_nothing = isinstance(value, float) and 0 < value < torch.finfo(torch.float32).tiny
        check_number(name, 0 if next_to_nothing else value, least=0, usual="a length in pixel units")
        return
    if not value.is_floating_point() or value.shape[:1] != (len(batch),) or value.numel() != len(batch):
        raise ConfigError(f"{name} must be a number, or a float tensor of {len(batch)} radii; got {shown(value)}.")
    if on_host(value) and not bool((value.isfinite() & (value >= 0)).all()):
        raise ConfigError(f"{name} must be finite and at least 0 for every image; got {shown(value)}.")


def _check_generator(name: str, value: Any, _: Any) -> None:
    check_kind(name, value, (torch.Generator,))


def _check_column(name: str, value: Any, batch: Tensor) -> None:
    right = isinstance(value, Tensor) and value.is_floating_point() and value.shape == (len(batch),)
    if not right or (on_host(value) and not bool(value.isfinite().all())):
        raise ConfigError(f"{name} must be a float tensor of {len(batch)} finite numbers; got {shown(value)}.")


def _check_wall(name: str, value: Any, batch: Tensor, sign: int) -> None:
    right = isinstance(value, Tensor) and value.is_floating_point() and value.shape == batch.shape
    if not right or (on_host(value) and not bool((value.isfinite() & (sign * value >= 0)).all())):
        limit = f"finite and at {'least' if sign > 0 else 'most'} 0"
        shape = tuple(batch.shape)
        raise ConfigError(f"{name} must be a float tensor of shape {shape}, {limit}; got {shown(value)}.")


def _check_weights(name: str, value: Any, batch: Tensor) -> None:
    right = isinstance(value, Tensor) and value.is_floating_point() and _broadcasts(value, batch)
    if not right or (on_host(value) and not bool((value.isfinite() & (value > 0)).all())):
        shape = tuple(batch.shape[1:])
        raise ConfigError(f"{name} must be positive floats that broadcast to images of {shape}; got {shown(value)}.")


def _broadcasts(value: Tensor, batch: Tensor) -> bool:
    try:
        return value.numel() > 0 and torch.broadcast_shapes(value.shape, batch.shape) == batch.shape
    except RuntimeError:
        return False


_CHECKS: dict[str, Callable[[str, Any, Any], None]] = {
    "batch": _check_batch,
    "like": _check_like,
    "radius": _check_radius,
    "generator": _check_generator,
    "column": _check_column,
    "below": partial(_check_wall, sign=-1),
    "above": partial(_check_wall, sign=1),
    "weights": _check_weights,
}
