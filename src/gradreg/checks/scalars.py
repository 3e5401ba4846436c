"""Numbers, switches and names. A number may be Python's, NumPy's, or a tensor without axes; True is not one.

What is checked comes back as Python's own int or float, so that nothing behind a check has to ask again.
"""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any

from gradreg.errors import ConfigError, GradregError, did_you_mean

# What float32, in which nearly all arithmetic is done, tells from infinity and from 0.
_LARGEST, _SMALLEST = 3.4e38, 1.2e-38
# Whole numbers end up in int64 tensors.
_LARGEST_WHOLE = 2**63 - 1
_SHOWN = 80
# Bytes, in any usual file system.
_LONGEST_NAME, _LONGEST_PATH = 255, 4096


@dataclass(frozen=True)
class Range:
    """The values that a number may have; as metadata of a type hint, as in `Annotated[float, Range(least=0)]`."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    usual: str = ""
    """For the error: a unit, or what people pass."""
    ends: float | None = None
    """Work that is done more often would not end, or not fit into memory: a slip of the keyboard, and no limit."""

    def __contains__(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """What the number must be: at least 1, above 0 and at most 1, from 1 to 3."""
        if self == Range(above=0):
            return "positive"
        if self.least is not None and self.most is not None:
            return f"from {self.least:.16g} to {self.most:.16g}"
        ends = (("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below))
        return " and ".join(f"{word} {end:.16g}" for word, end in ends if end is not None)


_BILLION = 10**9
Count = Annotated[int, Range(least=1, ends=_BILLION)]
"""How often something is done."""
AtMost = Annotated[int, Range(least=1)]
"""A limit, such as the images of a batch; any large number says that there is none."""
Repeats = Annotated[int, Range(least=0, ends=_BILLION)]
"""How often something is done, if at all."""
Natural = Annotated[int, Range(least=0)]
Side = Annotated[int, Range(least=1, ends=10_000)]
"""Pixels along a side of an image."""
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Between0And1 = Annotated[float, Range(above=0, below=1)]
UpTo1 = Annotated[float, Range(above=0, most=1)]
Below1 = Annotated[float, Range(least=0, below=1)]


def require(condition: bool, sentence: str) -> None:
    """Raise a ConfigError with that sentence unless the condition holds: for settings that depend on each other."""
    if not condition:
        raise ConfigError(sentence)


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    usual: str = "",
    error: type[GradregError] = ConfigError,
) -> float:
    """`value` as a float within these limits, finite and neither too large nor too small for float32."""
    found = plain(value)
    if not isinstance(found, int | float):
        raise error(f"{name} must be a number{_hint(usual)}; got {shown(value)}.")
    limits = Range(least, above, most, below)
    # Not math.isfinite, which cannot take an int of 400 digits.
    if found != found or abs(found) == math.inf:
        raise error(f"{name} must be a finite number{_hint(usual)}; got {found}.")
    if found not in limits:
        raise error(f"{name} must be {limits}{_hint(usual)}; got {shown(found)}.")
    if found and not _SMALLEST <= abs(found) <= _LARGEST:
        raise error(
            f"{name} must be a number that float32 can hold, {_SMALLEST:g} to {_LARGEST:g} in size; got {shown(found)}."
        )
    return float(found)


def check_integer(
    name: str,
    value: Any,
    *,
    least: int | None = None,
    most: int | None = None,
    usual: str = "",
    ends: float | None = None,
    error: type[GradregError] = ConfigError,
) -> int:
    """`value` as an int from `least` to `most`, and up to where work `ends`; 10.0 is not a whole number."""
    found = plain(value)
    if not isinstance(found, int):
        raise error(f"{name} must be a whole number{_hint(usual)}; got {shown(value)}.")
    if found not in (limits := Range(least=least, most=most)):
        raise error(f"{name} must be {limits}{_hint(usual)}; got {shown(found)}.")
    if abs(found) > _LARGEST_WHOLE:
        raise error(f"{name} must be at most {_LARGEST_WHOLE} in size; got {shown(found)}.")
    if ends is not None and found > ends:
        raise error(f"{name} must be at most {int(ends):,}: more would neither end nor fit in; got {shown(found)}.")
    return found


def check_count(name: str, value: Any, *, least: int = 1, usual: str = "") -> int:
    """How often something is done: an int from `least` on, of work that ends."""
    return check_integer(name, value, least=least, usual=usual, ends=_BILLION)


def check_numbers(name: str, values: Any, *, ascending: bool = False, **limits: Any) -> tuple[float, ...]:
    """One number or several, each within the limits of `number`; `ascending`: each larger than the one before."""
    several = _several(values)
    found = tuple(check_number(name, each, **limits) for each in ((values,) if several is None else several))
    if not found or (ascending and any(a >= b for a, b in pairwise(found))):
        order = " in ascending order" if ascending else ""
        raise limits.get("error", ConfigError)(f"{name} must be one or more numbers{order}; got {shown(values)}.")
    return found


def check_switch(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False; got {shown(value)}.")
    return value


def check_choice(name: str, value: Any, known: Iterable[Any], error: type[GradregError] = ConfigError) -> Any:
    """One of the `known` values, which are names, switches or whole numbers."""
    choices = list(known)
    given = value if isinstance(value, str | bool) else plain(value)
    for each in choices:
        if type(given) is type(each) and given == each:
            return each
    hint = did_you_mean(value, [each for each in choices if isinstance(each, str)])
    raise error(f"{name} must be one of {', '.join(map(repr, choices))}; got {shown(value)}{hint}.")


def check_names(name: str, values: Any) -> tuple[str, ...]:
    """Several names; one text is not several."""
    found = None if isinstance(values, bytes) else _several(values)
    if found is None or not all(isinstance(each, str) for each in found):
        raise ConfigError(f"{name} must be a list of names; got {shown(values)}.")
    return tuple(found)


def check_path(name: str, value: Any, error: type[GradregError] = ConfigError) -> Path:
    """A path, as text or as a Path. Python's own `open` takes a number, True included, for a file that is open."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise error(f"{name} must be a path; got {shown(value)}.")
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError:
        raise error(f"{name} must be a path that the file system can write; got {shown(value)}.") from None
    # Python raises where it only asks whether such a file is there.
    if len(raw) >= _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in raw.split(os.fsencode(os.sep))):
        raise error(
            f"{name} must be a path of less than {_LONGEST_PATH} bytes, of names of at most {_LONGEST_NAME}; got "
            f"{shown(value)}."
        )
    return Path(value)


def plain(value: Any) -> Any:
    """Python's own number for one of NumPy's or a tensor without axes; anything else, and True, comes back as None."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not getattr(value, "requires_grad", False):
        value = value.item()
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return None
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def shown(value: Any) -> str:
    """A value as an error shows it: on one line, and short."""
    if getattr(value, "is_nested", False):  # it has no shape, and says so with a RuntimeError
        return "a nested tensor"
    if hasattr(value, "shape") and hasattr(value, "dtype") and getattr(value, "ndim", 0) > 0:
        return f"a {type(value).__name__} of {value.dtype} and shape {tuple(value.shape)}"
    if getattr(value, "requires_grad", False):
        return "a tensor that requires a gradient, which would be lost"
    words = " ".join(repr(value).split())
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"


def _several(values: Any) -> Sequence[Any] | None:
    """The entries of a sequence, array or tensor with an axis; None for what is to be one number."""
    if isinstance(values, str | bytes | dict) or getattr(values, "ndim", 1) == 0 or not isinstance(values, Iterable):
        return None
    return list(values)


def _hint(usual: str) -> str:
    return f" ({usual})" if usual else ""
