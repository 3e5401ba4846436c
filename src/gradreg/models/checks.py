"""Checks of names and counts that a user gives to a model."""

from collections.abc import Iterable

from gradreg.errors import ModelError, did_you_mean


def unknown(what: str, name: object, known: Iterable[str]) -> ModelError:
    """The error for a `name` that is none of the `known`: suggests the closest one and lists them all."""
    choices = list(known)
    hint = did_you_mean(name, choices)
    return ModelError(f"There is no {what} {str(name)!r}{hint}: choose one of {', '.join(choices)}.")


def whole_number(name: str, value: object, *, least: int) -> None:
    """Accept nothing but an integer of at least `least`; True and 10.0 are not integers."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ModelError(f"{name} must be an integer of at least {least}; got {value!r}.")
