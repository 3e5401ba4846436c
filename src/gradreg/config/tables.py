"""Typed settings from plain tables, as TOML holds them, and back.

A table becomes a frozen dataclass, field by field. Errors give the full path of a setting, and an unknown key suggests
the closest known one. A field whose metadata names `kinds` holds one of several dataclasses; the table's `name`
says which, and the name alone stands for that kind with its defaults.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gradreg.checks.fields import conform
from gradreg.checks.scalars import Range, check_choice, shown
from gradreg.config.fractions import fraction
from gradreg.errors import ConfigError, did_you_mean

_T = TypeVar("_T")

_UNLIMITED = Range()
_SCALARS = (bool, int, float, str)


def build(cls: type[_T], table: Mapping[str, Any], where: str = "") -> _T:
    """`table` as a `cls`; `where` is the path of the table, with a dot at its end."""
    known = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
    hints = get_type_hints(cls, include_extras=True)
    for key in table:
        if key not in known:
            choice = (
                f": choose one of {', '.join(known)}" if known else f": {where.removesuffix('.')} has no settings here"
            )
            raise ConfigError(f"There is no setting {shown(where + key)}{did_you_mean(key, known, where) or choice}.")
    for name, field in known.items():
        if name not in table and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"The setting {where + name!r} is missing.")
    return cls(**{key: _convert(value, hints[key], known[key], where + key) for key, value in table.items()})


def plain(settings: Any) -> dict[str, Any]:
    """The table that `build` makes these settings from; None is left out, since TOML cannot express it."""
    return {
        field.name: _plain(value, field)
        for field in fields(settings)
        if field.init and (value := getattr(settings, field.name)) is not None
    }


def _convert(value: Any, hint: Any, field: Field[Any], where: str, limits: Range = _UNLIMITED) -> Any:
    """The value as its hint wants it. Limits are checked here too, where the full path of the setting is known."""
    if "kinds" in field.metadata:
        return _of_a_kind(value, field.metadata["kinds"](), where)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        own = next((each for each in parts[1:] if isinstance(each, Range)), limits)
        return _convert(value, parts[0], field, where, own)
    if origin in (Union, UnionType):
        if value is None and NoneType in parts:
            return None
        possible = [part for part in parts if part is not NoneType]
        if any(isinstance(part, type) and isinstance(value, part) for part in possible[1:]):
            return value  # an object made in Python, where a table has its name
        return _convert(value, possible[0], field, where, limits)
    if origin is Literal:
        return check_choice(where, value, parts)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where} must be a list; got {shown(value)}.")
        kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        if len(kinds) != len(value):
            raise ConfigError(f"{where} must be a list of {len(kinds)}; got {shown(value)}.")
        pairs = enumerate(zip(value, kinds, strict=True))
        return tuple(_convert(entry, kind, field, f"{where}[{i}]", limits) for i, (entry, kind) in pairs)
    if is_dataclass(hint):
        return _table(value, hint, where)  # type: ignore[arg-type]
    if hint in _SCALARS:
        return _scalar(value, hint, where, limits)
    if origin is not None and issubclass(origin, Mapping) and not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table such as {{ name = … }}; got {shown(value)}.")
    return value


def _table(value: Any, cls: type[_T], where: str) -> _T:
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table with {_names(cls)}; got {shown(value)}.")
    return build(cls, value, f"{where}.")


def _of_a_kind(value: Any, kinds: Mapping[str, type], where: str) -> Any:
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        if callable(value) or type(value) in kinds.values():
            return value  # an object made in Python
        raise ConfigError(f"{where} must be a table with a name, one of {', '.join(kinds)}; got {shown(value)}.")
    options = dict(value)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in kinds:
        hint = did_you_mean(name, kinds) if name else ""
        raise ConfigError(f"{where}.name must be one of {', '.join(kinds)}; got {shown(name)}{hint}.")
    return build(kinds[name], options, f"{where}.")


def _scalar(value: Any, kind: type, where: str, limits: Range) -> Any:
    if kind is float and isinstance(value, str) and "/" in value and (known := fraction(value)) is not None:
        value = known  # TOML cannot write 8/255 as a number
    if kind is str and not isinstance(value, str):
        raise ConfigError(f"{where} must be a string; got {shown(value)}.")
    return conform(where, value, kind, limits)


def _plain(value: Any, field: Field[Any] | None) -> Any:
    if field is not None and "kinds" in field.metadata:
        kinds = {kind: name for name, kind in field.metadata["kinds"]().items()}
        kind = type(value)
        if kind not in kinds:
            return {"name": f"{kind.__module__}:{kind.__qualname__}"}
        return {"name": kinds[kind], **plain(value)}
    if is_dataclass(value):
        return plain(value)
    if isinstance(value, Mapping):
        return {key: _plain(entry, None) for key, entry in value.items() if entry is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(entry, None) for entry in value]
    if not isinstance(value, str | int | float) and isinstance(name := getattr(value, "name", None), str):
        return name  # an object made in Python that says what files call it
    return value


def _names(cls: type) -> str:
    return ", ".join(field.name for field in fields(cls))
