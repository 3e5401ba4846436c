"""Options of an operation: a frozen dataclass that checks itself, given whole or by the same names as keywords."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from gradreg.errors import ConfigError, did_you_mean

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def options_of(cls: type[T], options: T | None, keywords: Mapping[str, Any]) -> T:
    """The options as given, or made of keywords."""
    if options is None:
        known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        for name in keywords:
            if name not in known:
                hint = did_you_mean(name, known) or f"; choose one of {', '.join(known)}"
                raise ConfigError(f"There is no option {name!r}{hint}.")
        for name, field in known.items():
            if field.default is MISSING and field.default_factory is MISSING and name not in keywords:
                raise ConfigError(f"{name} must be given: pass {name}=…, or options=.")
        return cls(**keywords)
    if not isinstance(options, cls):
        raise ConfigError(f"options must be {cls.__name__}(…); got a {type(options).__name__}.")
    if keywords:
        raise ConfigError(f"Pass options= or keywords, not both; got options= and {', '.join(keywords)}=.")
    return options


def plain(options: Any) -> dict[str, Any]:
    """The options as JSON has them: lists for tuples, names for objects that have one."""
    return {field.name: _plain(getattr(options, field.name)) for field in fields(options)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value.name) if hasattr(value, "name") else [_plain(part) for part in value]


def takes(cls: type) -> Callable[[F], F]:
    """Show the options of `cls` in the signature of a function that takes them as keywords, for help() and editors."""

    def shown(function: F) -> F:
        plain = inspect.signature(function)
        own = [each for each in plain.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = inspect.signature(cls).parameters.values()
        function.__signature__ = plain.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return shown
