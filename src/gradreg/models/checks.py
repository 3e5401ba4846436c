"""The error for a name that nothing has."""

from collections.abc import Iterable

from gradreg.errors import ModelError, did_you_mean


def unknown(what: str, name: object, known: Iterable[str]) -> ModelError:
    """The error for a `name` that is none of the `known`: suggests the closest one and lists them all."""
    choices = list(known)
    hint = did_you_mean(name, choices)
    return ModelError(f"There is no {what} {str(name)!r}{hint}: choose one of {', '.join(choices)}.")
