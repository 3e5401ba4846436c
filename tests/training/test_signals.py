"""The first signal asks for the end, the next one is the end."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gradreg.training.signals import stop_requests


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """A shell starts background jobs, as a CI's may be, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    """Python lets no other thread set a handler."""

    def handler() -> object:
        with stop_requests():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handler).result() is signal.default_int_handler
