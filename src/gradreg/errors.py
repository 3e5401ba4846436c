"""Errors a user can act on, and warnings: one sentence that says what was expected, what was given and what to do."""

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches


class GradregError(Exception):
    """The base of every error that gradreg raises on purpose."""


class ConfigError(GradregError):
    """An invalid argument, option or combination of them."""


class ModelError(GradregError):
    """A model that cannot be built, or whose output or mode would give silently wrong numbers."""


class DataError(GradregError):
    """Images or labels that are missing, damaged or of the wrong type or range."""


class PrecisionError(GradregError):
    """Arithmetic too coarse for the requested finite difference."""


class RunError(GradregError):
    """A run directory that exists already, is missing or damaged."""


class StorageError(GradregError, OSError):
    """A file that could not be written; what was there before is kept."""


class LostProcessError(GradregError):
    """One of several processes ended or is out of reach, so the others cannot go on."""


class TrustError(GradregError):
    """A file that names code to import, which the caller does not trust."""


class TrainingFailed(GradregError):  # noqa: N818
    """Training that failed in a known way: the message says how, where and what helps."""


class MissingPackageError(GradregError, ImportError):
    """A package that only a part of gradreg needs is not installed; the message names the extra that has it."""


class Interrupted(Exception):  # noqa: N818
    """A signal ended the run after it was saved. Not an error of the user's, so not a GradregError."""

    def __init__(self, sentence: str, signal: int) -> None:
        super().__init__(sentence)
        self.signal = signal


class GradregWarning(UserWarning):
    """What is computed all the same, and may not mean what it seems to."""


_SILENT = ContextVar("silent", default=False)


@contextmanager
def silenced() -> Iterator[None]:
    """Inside, gradreg warns of nothing: the caller has another way to say it."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


def warn(sentence: str) -> None:
    """Warn of something, at the line outside of gradreg that led to it."""
    if _SILENT.get():
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "gradreg":
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, GradregWarning, stacklevel=level)


def words_of(error: BaseException) -> str:
    """What somebody else's error says, on one line; with its kind where the words say nothing, as a KeyError's."""
    words = " ".join(str(error).split())
    return words if words and not isinstance(error, LookupError) else f"{type(error).__name__} {words}".rstrip()


def did_you_mean(name: object, known: Iterable[str], prefix: str = "") -> str:
    """` (did you mean 'X'?)` for the known name closest to a misspelt one, case ignored; "" if none is close.

    `prefix` goes in front of the suggested name, as in 'objective.lam'.
    """
    folded = {each.lower(): each for each in known}
    close = get_close_matches(str(name).lower()[:100], folded, n=1, cutoff=0.6)
    return f" (did you mean {prefix + folded[close[0]]!r}?)" if close else ""
