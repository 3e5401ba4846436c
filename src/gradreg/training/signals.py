"""SIGINT, SIGTERM and SIGHUP as a request to save and stop, not as a crash."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class StopRequest:
    """The signal that asked the run to stop; 0 if none did."""

    signal: int = 0


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Record the first signal; a second one acts at once, as usual. Outside the main thread, do nothing.

    A signal that is ignored stays so: that is how a shell starts a background job, and `nohup` one without a terminal.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    handlers = {number: signal.getsignal(number) for number in _STOPPING}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}

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
