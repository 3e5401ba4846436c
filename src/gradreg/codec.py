"""The record as plain JSON values and named tensors, and back, by the types of its fields."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor

Tensors = dict[str, Tensor]

# JSON has no word for these numbers: they become {"float": "inf"}.
_UNSPEAKABLE = "float"


def split(value: Any, at: str = "") -> tuple[Any, Tensors]:
    """What JSON can hold of a value, and its tensors by their path, as "attacked.distance"."""
    tensors: Tensors = {}
    return _split(value, at, tensors), tensors


def join(hint: Any, plain: Any, tensors: Mapping[str, Tensor], at: str = "") -> Any:
    """The value of type `hint` that `split` took apart; what does not fit raises KeyError, TypeError or ValueError."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Tensor:
        return tensors[at]
    if origin in (Union, UnionType):
        possible = [part for part in parts if part is not NoneType]
        if plain is None and NoneType in parts:
            return None
        return join(possible[0], plain, tensors, at) if len(possible) == 1 else _restored(plain)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        known = [
            field for field in fields(hint) if field.name in plain or hints[field.name] is Tensor or _needed(field)
        ]
        return hint(**{field.name: _field(hints, field.name, plain, tensors, at) for field in known})
    if origin is tuple:
        each = [parts[0]] * len(plain) if parts[-1] is Ellipsis else parts
        named = enumerate(zip(each, _checked(plain, list), strict=True))
        return tuple(join(part, item, tensors, _path(at, row)) for row, (part, item) in named)
    if origin is not None and _is_mapping(origin):
        return {key: join(parts[1], item, tensors, _path(at, key)) for key, item in _checked(plain, dict).items()}
    return _scalar(hint, plain)


def _is_mapping(origin: Any) -> bool:
    """Whether a generic's origin is a mapping; Literal and its like are no classes at all."""
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _split(value: Any, at: str, tensors: Tensors) -> Any:
    if isinstance(value, Tensor):
        tensors[at] = value.detach().cpu()
        return None
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        plain = {name: _split(part, _path(at, name), tensors) for name, part in parts.items()}
        return {name: part for name, part in plain.items() if not isinstance(parts[name], Tensor)}
    if isinstance(value, Mapping):
        return {str(key): _split(part, _path(at, key), tensors) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_split(part, _path(at, row), tensors) for row, part in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {_UNSPEAKABLE: repr(value)}
    return value


def _needed(field: Field[Any]) -> bool:
    """Fields that came later have a default, which is what older files mean by leaving them out."""
    return field.default is MISSING and field.default_factory is MISSING


def _field(hints: Mapping[str, Any], name: str, plain: Any, tensors: Mapping[str, Tensor], at: str) -> Any:
    item = None if hints[name] is Tensor else _checked(plain, dict)[name]
    return join(hints[name], item, tensors, _path(at, name))


def _scalar(hint: Any, plain: Any) -> Any:
    value = _restored(plain)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{value!r} is none of {get_args(hint)}")
        return value
    if hint is float:
        return float(_checked(value, int | float))
    return value if hint is Any else _checked(value, hint)


def _restored(plain: Any) -> Any:
    if isinstance(plain, dict):
        if set(plain) == {_UNSPEAKABLE} and isinstance(plain[_UNSPEAKABLE], str):
            return float(plain[_UNSPEAKABLE])
        return {key: _restored(item) for key, item in plain.items()}
    return [_restored(item) for item in plain] if isinstance(plain, list) else plain


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not a {kind}")
    return value


def _path(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)
