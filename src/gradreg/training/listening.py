"""Who hears of a run: a console, callbacks, and loggers, which cannot end a run that they only watch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console

from gradreg.checks.objects import check_several
from gradreg.checks.scalars import shown
from gradreg.errors import ConfigError, warn
from gradreg.training.callbacks import Callbacks
from gradreg.training.loggers import Logger


@dataclass(frozen=True)
class Listeners:
    """All of them, as `fit` was given them."""

    console: Console | None = None
    loggers: Sequence[Logger] = ()
    callbacks: Callbacks = field(default_factory=Callbacks)


class Loggers:
    """Several loggers; with none of them, nothing."""

    def __init__(self, members: Sequence[Logger]) -> None:
        self._members = members
        self._begun: list[Logger] = []

    def __enter__(self) -> "Loggers":
        return self

    def begin(self, settings: Mapping[str, Any], epoch: int) -> None:
        """Begin all of them; what one of them refuses is the caller's error."""
        for each in self._members:
            self._begun.append(each)
            each.begin(settings, epoch)

    def log(self, row: Mapping[str, Any], epoch: int) -> None:
        """The numbers of an epoch."""
        numbers = {
            name: float(value) for name, value in row.items() if isinstance(value, int | float) and name != "epoch"
        }
        for each in self._begun:
            try:
                each.log(numbers, epoch)
            except Exception as error:
                _warn(each, f"could not log epoch {epoch}", error)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        for each in self._begun:
            try:
                each.end(value)
            except Exception as error:
                _warn(each, "could not be ended", error)


def loggers_of(given: object) -> list[Logger]:
    """What `fit` was given: objects with the methods begin, log and end."""
    found = check_several("loggers", given, "a sequence of objects")
    for each in found:
        if not isinstance(each, Logger):
            raise ConfigError(f"A logger must have the methods begin, log and end; got {shown(each)}.")
    return found


def _warn(logger: Logger, what: str, error: Exception) -> None:
    """A tracking server that is out of reach is no reason to lose a night of training."""
    words = " ".join(str(error).split())[:200]
    warn(
        f"{type(logger).__name__} {what} ({type(error).__name__}: {words}). Training goes on; the run's metrics.jsonl "
        "has every number."
    )
