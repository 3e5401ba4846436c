"""What a user reads after a misspelt name or a senseless count."""

from collections.abc import Iterable
from difflib import get_close_matches

from gradreg.errors import ModelError


def unknown(what: str, name: object, known: Iterable[str]) -> ModelError:
    """The error for a `name` that is none of the `known`: names the nearest one and lists them all."""
    choices = list(known)
    return ModelError(
        f"{what.capitalize()} {str(name)!r} is unknown{nearest(name, choices)}: choose one of {', '.join(choices)}."
    )


def nearest(name: object, known: Iterable[str]) -> str:
    """`(did you mean 'X'?)` with a space in front, or nothing when no known name resembles it."""
    close = get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""


def whole_number(name: str, value: object, *, least: int) -> None:
    """Refuses anything but an integer of at least that much; True and 10.0 are no integers."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ModelError(f"{name} must be a whole number of at least {least}, but it is {value!r}.")
