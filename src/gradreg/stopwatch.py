"""Seconds that work took, by a clock that nobody sets back, without those in which the process was stopped.

A process that was stopped (Ctrl-Z, SIGSTOP, a batch system) is told so by SIGCONT, but not for how long. So the lap in
which that happened counts at most the processor time that was spent in it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from types import FrameType

_CONTINUED = getattr(signal, "SIGCONT", None)


class _Stops:
    """How often this process was continued."""

    count = 0


class Stopwatch:
    """Runs from the start; `lap` is the time since the lap before."""

    def __init__(self) -> None:
        self._total = 0.0
        self._wall, self._processor, self._stops = _now()

    def lap(self) -> float:
        """The seconds since the last lap, or since the start."""
        now = _now()
        seconds = self._since(*now)
        self._total += seconds
        self._wall, self._processor, self._stops = now
        return seconds

    @property
    def seconds(self) -> float:
        """All laps and what has passed of this one."""
        return self._total + self._since(*_now())

    def _since(self, wall: float, processor: float, stops: int) -> float:
        passed = wall - self._wall
        return passed if stops == self._stops else min(passed, processor - self._processor)


def _now() -> tuple[float, float, int]:
    return perf_counter(), process_time(), _Stops.count


@contextmanager
def noticing_stops() -> Iterator[None]:
    """Stopwatches notice that the process was stopped in here. Outside the main thread, do nothing."""
    if _CONTINUED is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.getsignal(_CONTINUED)

    def count(number: int, frame: FrameType | None) -> None:
        _Stops.count += 1
        if callable(before):
            before(number, frame)

    signal.signal(_CONTINUED, count)
    try:
        yield
    finally:
        signal.signal(_CONTINUED, before)
