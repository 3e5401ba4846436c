"""The first signal asks for the end, the next one is the end."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from gradreg.training.signals import stop_requests

pytestmark = pytest.mark.usefixtures("as_in_a_terminal")


def interrupted(times: int) -> int:
    """The signal that is noted when SIGINT comes that often."""
    with stop_requests() as request:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return request.signal


def test_the_second_signal_acts_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert interrupted(0) == 0
    assert interrupted(1) == signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        interrupted(2)
    assert signal.getsignal(signal.SIGINT) is before


def test_hanging_up_asks_for_the_end_and_what_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with stop_requests() as request:
            signal.raise_signal(signal.SIGHUP)
        assert request.signal == signal.SIGHUP
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        with stop_requests() as request:
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.raise_signal(number)
        assert request.signal == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    """Python lets no other thread set a handler."""

    def handler() -> object:
        with stop_requests():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handler).result() is signal.default_int_handler
