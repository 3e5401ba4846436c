"""What makes the host wait for the pretended device, and which line of gradreg asked for it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Waits:
    """What made the host wait for the device, each as the operation and the line of gradreg that asked for it."""

    looks: list[str] = field(default_factory=list)
    sends: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.looks) + len(self.sends)


_watching: list[Waits] = []


@contextmanager
def watching() -> Iterator[Waits]:
    """Note the waits of what happens inside."""
    waits = Waits()
    _watching.append(waits)
    try:
        yield waits
    finally:
        _watching.remove(waits)


def note(kind: str, what: str) -> None:
    if _watching:
        where = _line_of_gradreg()
        for waits in _watching:
            getattr(waits, kind).append(f"{what} at {where}")


def _line_of_gradreg() -> str:
    frame: Any = sys._getframe()
    while frame is not None and "gradreg/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return "the caller" if frame is None else f"{frame.f_code.co_filename.rpartition('gradreg/')[2]}:{frame.f_lineno}"
