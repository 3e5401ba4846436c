"""These tests run in a process of their own, where the pretended device is registered before anything else.

A backend is registered once and for all in a process, and would be seen by every other test of it (`device="auto"`
picks it). So each test here is sent by its name to a second pytest, which answers with its reports: they are selected,
shown and counted like any other. For a debugger, `GRADREG_PRETENDED=1 pytest tests/accelerator` uses one process.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from _pytest.runner import runtestprotocol

from accelerator import pretended

_HERE = Path(__file__).parent
_VARIABLE = "GRADREG_PRETENDED"
_INSIDE = _VARIABLE in os.environ
_SECONDS = 300

if _INSIDE:
    pretended.register()


class _Second:
    """The second pytest, and the connection to it."""

    def __init__(self, root: Path) -> None:
        self.connection, other = Pipe()
        self.output = tempfile.TemporaryFile("w+b")  # noqa: SIM115, closed by `end`
        environment = {**os.environ, _VARIABLE: str(other.fileno())}
        for name in [name for name in environment if name.startswith(("PYTEST_", "COV_"))]:
            del environment[name]
        plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--capture=sys"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-c", str(root / "pyproject.toml"), *plain, str(_HERE)],
            cwd=root, env=environment, pass_fds=[other.fileno()], stdout=self.output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        other.close()

    def ask(self, name: str) -> list[Any]:
        """The reports of one test."""
        self.connection.send(name)
        if not self.connection.poll(_SECONDS):
            self.process.kill()
        found: list[Any] = self.connection.recv()
        return found

    def end(self) -> str:
        """Stop it; what it printed."""
        self.connection.close()
        self.process.wait()
        with self.output:
            self.output.seek(0)
            return self.output.read().decode(errors="replace")


_second: list[_Second] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Have the second pytest run a test of this folder."""
    if _INSIDE or _HERE not in item.path.parents:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports(item: pytest.Item) -> list[pytest.TestReport]:
    if not _second:
        _second.append(_Second(item.config.rootpath))
    try:
        answers = _second[0].ask(item.nodeid)
    except (EOFError, OSError):
        printed = _second.pop().end()
        text = f"The second pytest ended in this test:\n{printed[-4000:]}"
        return [pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")]
    return [item.config.hook.pytest_report_from_serializable(config=item.config, data=data) for data in answers]


def pytest_unconfigure() -> None:
    while _second:
        _second.pop().end()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In the second pytest: run the tests that are asked for, until the first one hangs up."""
    if os.environ.get(_VARIABLE, "1") == "1":
        return None
    items = {item.nodeid: item for item in session.items}
    with Connection(int(os.environ[_VARIABLE])) as connection:
        for name in _asked(connection):
            reports = runtestprotocol(items[name], log=False)
            hook = session.config.hook.pytest_report_to_serializable
            connection.send([hook(config=session.config, report=report) for report in reports])
    return True


def _asked(connection: Connection) -> Iterator[str]:
    while True:
        try:
            yield connection.recv()
        except EOFError:
            return


@pytest.fixture(autouse=True)
def _device_stream_from_a_fixed_seed() -> None:
    torch.get_device_module(pretended.NAME).manual_seed_all(0)


@pytest.fixture
def device() -> torch.device:
    return pretended.device()
