"""What is put in the place of an argument: numbers, texts and things of another kind; tensors that look right."""

import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

from arguments.surface import Argument
from gradreg.checks.scalars import Range

ANYTHING: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "0": 0,
    "-1": -1,
    "2.5": 2.5,
    "1e39": 1e39,
    "1e-300": 1e-300,
    "10**12": 10**12,
    "10**400": 10**400,
    "True": True,
    "None": None,
    "text": "text",
    "no text": "",
    "bytes": b"text",
    "[]": [],
    "[nan]": [float("nan")],
    "{}": {},
    "object": object(),
    "1j": 1j,
    "tensor(nan)": torch.tensor(float("nan")),
    "2×3 tensor": torch.ones(2, 3),
    "array of 2": np.ones(2),
}
_NUMBERS = ("nan", "inf", "-inf", "0", "-1", "2.5", "1e39", "1e-300", "10**12", "10**400", "tensor(nan)")


def images(x: Tensor) -> dict[str, Any]:
    """Batches that are none, or whose pixels are wrong, in the place of `x`."""
    return {
        "a NaN pixel": x.index_fill(-1, torch.tensor([0]), torch.nan),
        "an infinite pixel": x.index_fill(-1, torch.tensor([0]), torch.inf),
        "0 to 255": (x * 255).round(),
        "bytes of pixels": (x * 255).byte(),
        "complex": x.to(torch.complex64),
        "no image": x[:0],
        "no pixel": x[..., :0],
        "one axis": x.flatten(),
        "as a list": x.tolist(),
        "as an array": x.numpy(),
        "on another device": x.to("meta"),
    }


def labels(y: Tensor) -> dict[str, Any]:
    """Labels of another type, range, number or place."""
    return {
        "int32": y.int(),
        "uint8": y.byte(),
        "float": y.float(),
        "bool": y.bool(),
        "all -100": torch.full_like(y, -100),
        "one -1": y.index_fill(0, torch.tensor([0]), -1),
        "one too large": y.index_fill(0, torch.tensor([0]), 1000),
        "one missing": y[1:],
        "none": y[:0],
        "two axes": y[:, None],
        "as a list": y.tolist(),
        "as an array": y.numpy(),
        "on another device": y.to("meta"),
    }


def column(values: Tensor) -> dict[str, Any]:
    """One number per image, of which some cannot be."""
    first = torch.tensor([0])
    return {
        "a NaN": values.index_fill(0, first, torch.nan),
        "a negative one": values.index_fill(0, first, -5.0),
        "two axes": values[:, None],
        "one missing": values[1:],
        "none": values[:0],
        "complex": values.to(torch.complex64),
        "as a list": values.tolist(),
    }


def odd(value: Tensor) -> dict[str, Any]:
    """Tensors of the kinds that torch hardly computes with, or whose values are not there, in the place of `value`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of a prototype
        nested = torch.nested.nested_tensor(list(value) if value.ndim > 1 else [value.reshape(-1)])
    return {
        "float8": torch.zeros(value.shape).to(torch.float8_e4m3fn),
        "sparse": value.to_sparse() if value.ndim else value[None].to_sparse(),
        "nested": nested,
        "without values": value.to("meta"),
        "without axes": value.sum(),
    }


def spoiled(entry: str, argument: Argument, call: Mapping[str, Any]) -> dict[str, Any]:
    """What is tried for this argument of that call, by a name for each."""
    found, given = dict(ANYTHING), call.get(argument.name)
    if isinstance(given, Tensor) and argument.name in _TENSORS:
        found |= _TENSORS[argument.name](given)
        if "model" not in call:  # nothing says where it must be
            found.pop("on another device", None)
    if isinstance(given, Tensor) or Tensor in kinds(argument.hint):
        found |= odd(given if isinstance(given, Tensor) else torch.ones(4))
    if isinstance(given, tuple) and argument.name == "data":
        found |= {f"images {label}": (value, given[1]) for label, value in odd(given[0]).items()}
        found |= {f"labels {label}": (given[0], value) for label, value in odd(given[1]).items()}
    named = kinds(argument.hint)
    if named & {int, float} and not named & {Sequence, tuple, Iterable}:
        found["several"] = [0.5, 0.5]
    return found


_TENSORS: dict[str, Callable[[Tensor], dict[str, Any]]] = {
    "x": images,
    "v": images,
    "g": images,
    "start": images,
    "data": images,
    "y": labels,
    "labels": labels,
    "target": labels,
    "bound": column,
    "distance": column,
    "sound": column,
    "h": column,
    "need": column,
    "normal": images,
    "lower": images,
    "upper": images,
}


def may_be(argument: Argument, label: str) -> bool:
    """Whether the hint allows such a value; then it may be taken or refused, but what is made of it must be sound."""
    named = kinds(argument.hint)
    if Any in named:
        return label not in _NUMBERS
    allowed = {
        "None": types.NoneType in named,
        "True": bool in named,
        "text": bool(named & {str, Path}),
        "no text": bool(named & {str, Path}),
        "[]": bool(named & {Sequence, Iterable, tuple, list}),
        "{}": bool(named & {Mapping, dict, Iterable}),
        "2.5": float in named,
        "without axes": bool({int, float} & named),
        "several": False,
    }
    limits = limits_of(argument.hint)
    if limits is not None and label in ("0", "-1", "10**12") and named & {int, float}:
        return ANYTHING[label] in limits
    return allowed.get(label, False)


def limits_of(hint: Any) -> Range | None:
    if get_origin(hint) is Annotated:
        return next((each for each in get_args(hint)[1:] if isinstance(each, Range)), None)
    if get_origin(hint) in (Union, types.UnionType):
        return next((found for part in get_args(hint) if (found := limits_of(part))), None)
    return None


def kinds(hint: Any) -> set[Any]:
    """The types that a hint names."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return kinds(parts[0])
    if origin in (Union, types.UnionType):
        return set().union(*map(kinds, parts))
    if origin is Literal:
        return set()
    if origin is not None:
        return {{Sequence.__name__: Sequence}.get(getattr(origin, "__name__", ""), origin)}
    if isinstance(hint, type) and issubclass(hint, Path):
        return {Path}
    return {hint}
