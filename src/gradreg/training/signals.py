"""SIGINT and SIGTERM as a request to save and stop, not as a crash."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Which signal asked for the end of the run, if one did."""

    signal: int = 0


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note the first signal; the second one acts at once, as it would without us. Outside the main thread: nothing."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = number
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        restore()
