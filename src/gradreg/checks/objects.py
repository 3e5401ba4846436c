"""Texts, functions, devices and objects of a class. What an argument must be stands in its type hint, or in `Must`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gradreg.checks.scalars import check_names, shown
from gradreg.errors import ConfigError, GradregError


@dataclass(frozen=True)
class Must:
    """What a function must be, in words, and the kind of error if it is none: as metadata of a type hint."""

    words: str
    error: type[GradregError] = ConfigError


@dataclass(frozen=True)
class Words:
    """What the names of a list must be, as a pattern and in words: as metadata of a type hint."""

    pattern: str
    words: str


def check_words(name: str, value: Any, must: Words) -> tuple[str, ...]:
    """One or more names of that form."""
    found = check_names(name, value)
    if not found or any(re.fullmatch(must.pattern, each) is None for each in found):
        raise ConfigError(f"{name} must be {must.words}; got {shown(value)}.")
    return found


def check_several(name: str, value: Any, words: str, error: type[GradregError] = ConfigError) -> list[Any]:
    """The entries of a list, or of whatever gives them one after the other; a text or a table does not."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise error(f"{name} must be {words}; got {shown(value)}.")
    return list(value)


def check_text(name: str, value: Any) -> str:
    """A text; bytes are none."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string; got {shown(value)}.")
    return value


def check_function(name: str, value: Any, must: Must = Must("a function")) -> Any:  # noqa: B008
    """Something that can be called."""
    if not callable(value):
        raise must.error(f"{name} must be {must.words}; got {shown(value)}.")
    return value


def check_kind(name: str, value: Any, kinds: tuple[type, ...]) -> Any:
    """An object of one of these classes."""
    if not isinstance(value, kinds):
        known = f"of type {' or '.join(kind.__name__ for kind in kinds)}".replace("of type Module", "an nn.Module")
        raise ConfigError(f"{name} must be {known}; got {shown(value)}.")
    return value


def check_place(name: str, value: Any) -> Any:
    """A device of torch that this machine has, or its name. Tensors take other things for a type to be cast to."""
    import torch

    try:
        if isinstance(value, str | torch.device):
            torch.empty(0, device=value)
            return value
    except (RuntimeError, AssertionError, NotImplementedError):
        pass
    raise ConfigError(f"{name} must be a device of this machine, such as 'cpu'; got {shown(value)}.")
