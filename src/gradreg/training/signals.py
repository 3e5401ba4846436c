"""SIGINT and SIGTERM as a request to save and stop, not as a crash."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """The signal that asked the run to stop; 0 if none did."""

    signal: int = 0


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Record the first signal; a second one acts at once, as usual. Outside the main thread, do nothing."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def record(number: int, frame: FrameType | None) -> None:
        request.signal = number
        restore()

    for number in before:
        signal.signal(number, record)
    try:
        yield request
    finally:
        restore()
