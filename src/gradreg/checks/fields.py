"""Options checked by their type hints: the fields of a frozen dataclass, or a function's own options.

An option is spelled once, with its limits: `images: Count = 1000` or `slack: Annotated[float, Range(least=0)] = 0.1`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from gradreg.checks.objects import Must, Words, check_function, check_kind, check_place, check_text, check_words
from gradreg.checks.scalars import Range, check_choice, check_integer, check_number, check_path, check_switch, shown
from gradreg.errors import ConfigError

_UNLIMITED = Range()
_SIMPLE: dict[Any, Callable[[str, Any], Any]] = {bool: check_switch, str: check_text, Path: check_path}
# Checked where they are used, with the images that they belong to.
_UNCHECKED = {"Tensor", "ndarray", "Sequence", "Iterable"}


def check_fields(options: Any, path: str = "") -> None:
    """Check every number, switch and choice of a frozen dataclass, and make its numbers Python's own.

    `path` goes in front of a field's name in errors, as in "probe.steps must be at least 1; got 0."
    """
    cls: Any = type(options)
    hints = _hints(cls)
    for field in fields(options):
        value = getattr(options, field.name)
        found = conform(path + field.name, value, hints[field.name])
        if found is not value:
            object.__setattr__(options, field.name, found)


def check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a function, checked by the type hints of its signature; errors name the function too."""
    hints = _hints(function)
    return {name: conform(f"{function.__name__}'s {name}", value, hints[name]) for name, value in options.items()}


def conform(name: str, value: Any, hint: Any, limits: Range = _UNLIMITED) -> Any:
    """`value` as its type hint wants it. Tensors, and what may be of very different types, have checks of their own."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        for each in parts[1:]:
            if isinstance(each, Must):
                return check_function(name, value, each)
            if isinstance(each, Words):
                return check_words(name, value, each)
        limits = next((each for each in parts[1:] if isinstance(each, Range)), limits)
        return conform(name, value, parts[0], limits)
    if origin in (Union, UnionType):
        return _union(name, value, parts, limits)
    if origin is Literal:
        return check_choice(name, value, parts)
    if origin is tuple:
        return _tuple(name, value, parts, limits)
    if hint is int:
        least, most = (None if end is None else int(end) for end in (limits.least, limits.most))
        return check_integer(name, value, least=least, most=most, usual=limits.usual, ends=limits.ends)
    if hint is float:
        return check_number(name, value, **{end: each for end, each in vars(limits).items() if end != "ends"})
    if hint in _SIMPLE:
        return _SIMPLE[hint](name, value)
    if getattr(hint, "_is_protocol", False) and isinstance(hint, type):
        return check_function(name, value) if "__call__" in vars(hint) else value
    if origin is Callable:
        return check_function(name, value)
    kind = origin or hint
    return check_kind(name, value, (kind,)) if _is_class(kind) else value


def _union(name: str, value: Any, parts: tuple[Any, ...], limits: Range) -> Any:
    kinds = [part for part in parts if part is not NoneType]
    if value is None and NoneType in parts:
        return None
    if len(kinds) == 1:
        return conform(name, value, kinds[0], limits)
    plain = {get_origin(kind) or kind for kind in kinds}
    if plain <= {str, os.PathLike, Path}:
        check_path(name, value)
        return value
    if any(getattr(kind, "__module__", "") == "torch" and kind.__name__ == "device" for kind in kinds):
        return check_place(name, value)
    if plain == {bool, Callable} and not isinstance(value, bool):
        return check_function(name, value, Must("True, False or a function"))
    return check_kind(name, value, tuple(kinds)) if all(map(_is_class, kinds)) else value


def _is_class(kind: Any) -> bool:
    """Whether a hint is a class that objects can be compared with."""
    return isinstance(kind, type) and kind is not Any and kind.__name__ not in _UNCHECKED


def _tuple(name: str, value: Any, parts: tuple[Any, ...], limits: Range) -> Any:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} must be a list; got {shown(value)}.")
    kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else list(parts)
    if len(kinds) != len(value):
        raise ConfigError(f"{name} must be a list of {len(kinds)}; got {shown(value)}.")
    return tuple(conform(name, each, kind, limits) for each, kind in zip(value, kinds, strict=True))


@cache
def _hints(of: Any) -> dict[str, Any]:
    return get_type_hints(of, include_extras=True)
