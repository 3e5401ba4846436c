"""The record as plain JSON values and named tensors, and back, by the types of its fields."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from gradreg.checks.scalars import shown
from gradreg.errors import DataError, did_you_mean

Tensors = dict[str, Tensor]

# JSON has no word for these numbers: they become {"float": "inf"}.
_UNSPEAKABLE = "float"
LEFT_OUT: Mapping[str, Any] = {"left out": True}
"""Metadata of a field that is left out while it has its default, so that files without it stay as they were."""
_WORDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def split(value: Any, at: str = "") -> tuple[Any, Tensors]:
    """What JSON can hold of a value, and its tensors by their path, as "attacked.distance"."""
    tensors: Tensors = {}
    return _split(value, at, tensors), tensors


def join(hint: Any, plain: Any, tensors: Mapping[str, Tensor], at: str = "") -> Any:
    """The value of type `hint` that `split` took apart; anything else is refused with a DataError that says where.

    A field may be left out if it has a default. A key that is no field, and a value of another type, are refused.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Tensor:
        return _tensor(tensors, at)
    if origin in (Union, UnionType):
        return _one_of(parts, plain, tensors, at)
    if isinstance(hint, type) and is_dataclass(hint):
        return _record(hint, plain, tensors, at)
    if origin in (tuple, list):
        items = _checked(plain, list, "a list", at)
        each = [parts[0]] * len(items) if origin is list or parts[-1] is Ellipsis else parts
        if len(each) != len(items):
            raise _unfit(at, f"a list of {len(each)}", items)
        return origin(
            join(part, item, tensors, _path(at, row)) for row, (part, item) in enumerate(zip(each, items, strict=True))
        )
    if origin is not None and _is_mapping(origin):
        table = _checked(plain, dict, "a table", at)
        return {key: join(parts[1], item, tensors, _path(at, key)) for key, item in table.items()}
    return _scalar(hint, plain, at)


def _is_mapping(origin: Any) -> bool:
    """Whether a generic's origin is a mapping; Literal and its like are no classes at all."""
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _split(value: Any, at: str, tensors: Tensors) -> Any:
    if isinstance(value, Tensor):
        tensors[at] = value.detach().cpu()
        return None
    if is_dataclass(value) and not isinstance(value, type):
        given = ((each, getattr(value, each.name)) for each in fields(value))
        parts = {each.name: part for each, part in given if not (each.metadata == LEFT_OUT and part is each.default)}
        plain = {name: _split(part, _path(at, name), tensors) for name, part in parts.items()}
        return {name: part for name, part in plain.items() if not isinstance(parts[name], Tensor)}
    if isinstance(value, Mapping):
        return {str(key): _split(part, _path(at, key), tensors) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_split(part, _path(at, row), tensors) for row, part in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {_UNSPEAKABLE: repr(value)}
    return value


def _tensor(tensors: Mapping[str, Tensor], at: str) -> Tensor:
    if at not in tensors:
        raise DataError(f"The tensor {at!r} is missing.")
    return tensors[at]


def _one_of(parts: tuple[Any, ...], plain: Any, tensors: Mapping[str, Tensor], at: str) -> Any:
    """A value of one of several types: None, its own, or the first that fits (a whole number is a float too)."""
    if plain is None and NoneType in parts:
        return None
    possible = sorted((part for part in parts if part is not NoneType), key=lambda part: part is not type(plain))
    for part in possible[:-1]:
        try:
            return join(part, plain, tensors, at)
        except DataError:
            continue
    return join(possible[-1], plain, tensors, at)


def _record(hint: Any, plain: Any, tensors: Mapping[str, Tensor], at: str) -> Any:
    hints, table = get_type_hints(hint), _checked(plain, dict, "a table", at)
    known = {field.name: field for field in fields(hint) if field.init}
    for key in table:
        if key not in known or hints[key] is Tensor:
            raise DataError(f"{shown(_path(at, key))} is not expected here{did_you_mean(key, known)}.")
    found = {}
    for name, field in known.items():
        if name in table or hints[name] is Tensor:
            found[name] = join(hints[name], table.get(name), tensors, _path(at, name))
        elif _needed(field):
            raise DataError(f"{_path(at, name)!r} is missing.")
    return hint(**found)


def _needed(field: Field[Any]) -> bool:
    """Fields that came later have a default, which is what older files mean by leaving them out."""
    return field.default is MISSING and field.default_factory is MISSING


def _scalar(hint: Any, plain: Any, at: str) -> Any:
    value = _restored(plain, at)
    if hint is Any:
        return value
    if get_origin(hint) is Literal:
        if not isinstance(value, str) or value not in get_args(hint):
            raise _unfit(at, f"one of {', '.join(map(repr, get_args(hint)))}", value)
        return value
    kinds = (int, float) if hint is float else hint
    if isinstance(value, bool) and hint is not bool:
        raise _unfit(at, _WORDS.get(hint, str(hint)), value)
    _checked(value, kinds, _WORDS.get(hint, str(hint)), at)
    try:
        return float(value) if hint is float else value
    except OverflowError:
        raise _unfit(at, "a number within the range of floats", value) from None


def _restored(plain: Any, at: str) -> Any:
    if isinstance(plain, dict):
        if set(plain) == {_UNSPEAKABLE} and isinstance(plain[_UNSPEAKABLE], str):
            if plain[_UNSPEAKABLE] not in ("inf", "-inf", "nan"):
                raise _unfit(at, "'inf', '-inf' or 'nan'", plain[_UNSPEAKABLE])
            return float(plain[_UNSPEAKABLE])
        return {key: _restored(item, at) for key, item in plain.items()}
    return [_restored(item, at) for item in plain] if isinstance(plain, list) else plain


def _checked(value: Any, kind: Any, words: str, at: str) -> Any:
    if not isinstance(value, kind):
        raise _unfit(at, words, value)
    return value


def _unfit(at: str, words: str, value: Any) -> DataError:
    return DataError(f"{at or 'it'} must be {words}; got {shown(value)}.")


def _path(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)
