"""Durations that neither a stopped process nor a clock that is set back can spoil."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gradreg import stopwatch
from gradreg.ledger import Timer
from gradreg.stopwatch import Stopwatch, noticing_stops

STOPPED = """
import json, time
from gradreg.stopwatch import Stopwatch, noticing_stops
with noticing_stops():
    watch = Stopwatch()
    laps = []
    until = time.process_time() + 0.6
    print("running", flush=True)
    while time.process_time() < until:
        start = time.process_time()
        while time.process_time() - start < 0.1:
            pass
        laps.append(watch.lap())
print(json.dumps([watch.seconds, sum(laps)]))
"""


def test_the_time_in_which_a_process_was_stopped_does_not_count() -> None:
    """It works for 0.6 seconds of processor time and is stopped for 3."""
    process = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    began = time.monotonic()
    process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    process.send_signal(signal.SIGCONT)
    whole, laps = json.loads(process.communicate(timeout=60)[0])
    passed = time.monotonic() - began
    assert whole == pytest.approx(laps, abs=0.2)
    assert 0.3 < whole < passed - 2.5


def test_laps_add_up_and_are_those_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, processor = [10.0], [5.0]
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: wall[0])
    monkeypatch.setattr(stopwatch, "process_time", lambda: processor[0])
    watch = Stopwatch()
    wall[0], processor[0] = 12.0, 5.5
    assert (watch.seconds, watch.lap(), watch.seconds) == (2.0, 2.0, 2.0)
    wall[0], processor[0] = 13.0, 6.0
    assert (watch.seconds, watch.lap()) == (3.0, 1.0)
    with noticing_stops():
        os.kill(os.getpid(), signal.SIGCONT)
        wall[0], processor[0] = 1013.0, 6.5
        assert (watch.lap(), watch.seconds) == (0.5, 3.5), "the lap with a stop counts its processor time"
        wall[0], processor[0] = 1013.25, 9.0
        assert watch.lap() == 0.25
        os.kill(os.getpid(), signal.SIGCONT)
        wall[0], processor[0] = 1014.25, 19.0
        assert watch.lap() == 1.0, "many threads spend more processor time than passes"


def test_handlers_are_put_back_and_called() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGCONT, lambda number, frame: seen.append(number))
    try:
        ours = signal.getsignal(signal.SIGCONT)
        with noticing_stops():
            signal.raise_signal(signal.SIGCONT)
        assert (seen, signal.getsignal(signal.SIGCONT)) == ([signal.SIGCONT], ours)
    finally:
        signal.signal(signal.SIGCONT, before)


def test_other_threads_leave_signals_alone() -> None:
    def inside() -> object:
        with noticing_stops():
            return signal.getsignal(signal.SIGCONT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(inside).result() == signal.getsignal(signal.SIGCONT)


def test_a_clock_that_is_set_back_changes_no_duration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock on the wall goes back by a second whenever anybody looks."""
    now = [1e9]

    def backwards() -> float:
        now[0] -= 1
        return now[0]

    monkeypatch.setattr(time, "time", backwards)
    timer = Timer(tmp_path / "attacks.seconds.json")
    monkeypatch.setattr("gradreg.ledger._EVERY", -1.0)
    tick = timer.watching(lambda done, total: None)
    noted = []
    for done in range(3):
        tick(done, 3)
        noted.append(json.loads((tmp_path / "attacks.seconds.json").read_text())["seconds"])
    assert 0 <= noted[0] <= noted[1] <= noted[2] < 10
