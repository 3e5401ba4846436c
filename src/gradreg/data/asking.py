"""Somebody else's data set or loader, asked: its failures become one sentence, and one without end is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gradreg.errors import DataError, GradregError, warn, words_of

# Of a loader that does not say its length, or gives more. Batches of one image, if need be, and read within seconds.
_MOST_BATCHES = 250_000
# What torch puts before the traceback of a process that loads images.
_OF_A_WORKER = "Original Traceback"


@contextmanager
def failing(at: str) -> Iterator[None]:
    """Inside, whatever a data set raises becomes a DataError that says where; a lack of memory stays what it is."""
    try:
        yield
    except (GradregError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise DataError(f"The data failed at {at} ({_words(error)}).") from error


def _words(error: Exception) -> str:
    """The kind and the words of an error; of one from a worker its last line, which has both."""
    words = str(error)
    if _OF_A_WORKER in words:
        return words.strip().splitlines()[-1][:200]
    name = type(error).__name__
    said = words_of(error)
    return said if said.startswith(name) else f"{name}: {said}"[:200]


def length(loader: object) -> int | None:
    """The number of batches that a loader says it has; None if it does not say, as one of an endless stream."""
    with failing("the length of a loader"):
        try:
            return len(loader)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):  # a DataLoader has a `__len__` even where its data set has none
            return None


def entries(loader: Iterable[Any], most: int = _MOST_BATCHES) -> Iterator[Any]:
    """The batches of a loader that is read to its end, which must come: after `most` batches or its length."""
    said = length(loader)
    with failing("its beginning"):
        iterator, number = iter(loader), 0
    while True:
        with failing(f"batch {number + 1}"):
            try:
                entry = next(iterator)
            except StopIteration:
                break
        number += 1
        if number > max(most, said or 0):
            raise DataError(
                f"The data must end; got more than {number - 1:,} batches of a loader"
                f"{'' if said is None else f' of length {said:,}'}: pass a part of it, such as a list of batches."
            )
        yield entry
    # A data set that raises StopIteration ends a DataLoader too. Without any batch there is nothing to go on with.
    if said is not None and 0 < number < said:
        warn(f"The data ended after {number:,} batches of a loader of length {said:,}: some images may be missing.")
