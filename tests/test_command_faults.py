"""A command whose surroundings fail ends with one sentence or in silence, with a status that shells know."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gradreg.cli import faults, main
from gradreg.cli.models import Models
from gradreg.errors import ConfigError

GRADREG = [sys.executable, "-m", "gradreg"]


def shell(line: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A line of bash, in which $G is the command."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("$G", " ".join(GRADREG))],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        ("$G --version >&-", 0, ""),
        ("$G --help <&- >&- 2>&-", 0, ""),
        ("$G --version > /dev/full", 2, "gradreg: The operating system refused: No space left on device.\n"),
        ("$G --help > /dev/full", 2, "gradreg: The operating system refused: No space left on device.\n"),
        ("$G --help > /dev/full 2> /dev/full", 2, ""),
    ],
)
def test_streams_that_take_nothing(line: str, status: int, sentence: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stderr) == (status, sentence)


def unread(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """A command whose stdout is a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run([*GRADREG, *arguments], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writer)


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_a_pipe_that_nobody_reads(argument: str) -> None:
    done = unread(argument)
    assert (done.returncode, done.stderr) == (141, b"")
    assert shell(f"$G {argument} | head -1").stderr == ""


@pytest.mark.parametrize("columns", ["1", "5", "20"])
def test_a_narrow_terminal_whose_encoding_lacks_our_signs(columns: str) -> None:
    """The help of a command has bullets; in one column the library that lays it out would never end."""
    done = shell("$G --help", COLUMNS=columns, PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recipes", "models", "networks", "data mnist5k", "evaluate --help"])
def test_listings_into_a_pipe_that_nobody_reads_and_in_ascii(name: str) -> None:
    done = unread(*name.split())
    assert (done.returncode, done.stderr) == (141, b"")
    assert shell(f"$G {name} > /dev/full").stderr.count("\n") == 1
    narrow = shell(f"$G {name}", PYTHONIOENCODING="ascii", COLUMNS="20")
    assert (narrow.returncode, narrow.stderr) == (0, "")


def test_the_version() -> None:
    from gradreg import __version__

    assert shell("$G --version").stdout == f"gradreg {__version__}\n"


def raising(error: BaseException) -> Callable[[object], None]:
    def run(command: object) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (ConfigError("epochs must be at least 1; got 0."), 2, "epochs must be at least 1; got 0."),
        (OSError(28, "No space left on device", "runs/x"), 2, "runs/x cannot be used: No space left on device."),
        (OSError(30, "Read-only file system", b"r\xff"), 2, "r\\udcff cannot be used: Read-only file system."),
        (OSError("odd"), 2, "The operating system refused: odd."),
        (TimeoutError(), 2, "The operating system refused: TimeoutError."),
        (MemoryError(), 2, "Memory ran out: use smaller batches or fewer images, or a larger machine."),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory:\n you tried"),
            2,
            "Memory ran out (DefaultCPUAllocator: can't allocate memory: you tried): use smaller batches or fewer "
            "images, or a larger machine.",
        ),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_what_a_fault_is_told_as(
    error: BaseException, status: int, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Models, "run", raising(error))
    with pytest.raises(SystemExit) as stop:
        main(["models"])
    told = capsys.readouterr()
    assert (stop.value.code, told.out, told.err) == (status, "", f"gradreg: {sentence}\n" if sentence else "")


ODD_NAMES = {
    "too long": "x" * 300,
    "a new line": "a\nb c",
    "bytes": os.fsdecode(b"r\xff"),
    "below a file": f"{__file__}/x",
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
@pytest.mark.parametrize("command", ["evaluate", "report", "runs", "data"])
def test_odd_names_of_what_is_not_there(command: str, name: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, f"folder:{name}" if command == "data" else name])
    told = capsys.readouterr()
    assert (stop.value.code, told.out) == (2, "")
    assert told.err.startswith("gradreg: ")
    assert told.err.count("\n") == 1


def test_a_bug_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ValueError("bug"), RuntimeError("bug")):
        monkeypatch.setattr(Models, "run", raising(error))
        with pytest.raises(type(error), match="bug"):
            main(["models"])


def test_memory_that_torch_cannot_get_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(Models, "run", lambda command: torch.empty(1 << 44))
    with pytest.raises(SystemExit) as stop:
        main(["models"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("gradreg: Memory ran out (")


def signalled(number: signal.Signals, cleaned: list[bool]) -> None:
    try:
        signal.raise_signal(number)
    finally:
        cleaned.append(True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_a_command_by_an_exception_and_are_put_back(number: signal.Signals) -> None:
    """So that temporary files and locks go, as for Ctrl-C."""
    before = signal.signal(number, signal.SIG_DFL)
    cleaned: list[bool] = []
    try:
        with pytest.raises(SystemExit) as stop, faults.guarded():
            signalled(number, cleaned)
        assert (stop.value.code, cleaned) == (128 + number, [True])
        assert signal.getsignal(number) is signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN)
        with faults.guarded():
            signal.raise_signal(number)  # `nohup` stays in force
    finally:
        signal.signal(number, before)


class Torn:
    """Whose destructor is where an interrupt arrives."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_python_drops_is_sent_again(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def run(command: object) -> None:
        torn: Torn | None = Torn()
        del torn
        time.sleep(60)

    monkeypatch.setattr(Models, "run", run)
    try:
        with pytest.raises(SystemExit) as stop:
            main(["models"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (stop.value.code, *capsys.readouterr()) == (130, "", "")


def interrupted_after(seconds: float, *arguments: str, cwd: Path) -> tuple[int, str]:
    """The status and stderr of a command that gets SIGINT so long after `main` was entered.

    In the hundredths of a second before that, when nothing of ours runs, SIGINT is reported by Python itself.
    """
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from gradreg.cli import faults, main\n"
        "opened = faults._open_streams\n"
        "faults._open_streams = lambda: print('+', end='', flush=True, file=opened())\n"
        "main()"
    )
    command = [sys.executable, "-c", code, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=cwd) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"+"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    return process.returncode, errors.decode()


@pytest.mark.parametrize("seconds", [0.02, 0.3])
def test_ctrl_c_while_modules_are_imported_is_silent(seconds: float, tmp_path: Path) -> None:
    status, errors = interrupted_after(seconds, "train", "mnist5k-l2", "--run", "run", cwd=tmp_path)
    assert (status, errors) in ((-signal.SIGINT, ""), (130, ""))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and its evaluation."""
    folder = tmp_path_factory.mktemp("commands")
    settings = ("epochs=1", "held_out=3900", "probe.images=20")
    train = ["train", "mnist5k-l2", "--run", "run", *(word for each in settings for word in ("--set", each))]
    evaluate = [
        "evaluate",
        "run",
        "--images",
        "4",
        "--attacks",
        "quick",
        "--no-diagnosis",
        "--calibration-images",
        "50",
    ]
    for command in (train, evaluate):
        subprocess.run([*GRADREG, *command], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "mnist5k-l2", "--run", "RUN"),
        ("evaluate", "run", "--out", "OUT"),
        ("inspect", "0", "--model", "run"),
        ("diagnose", "run"),
        ("report", "run/evaluation", "--figures", "FIGURES"),
        ("runs", "run"),
        ("recipes",),
        ("demo", "--out", "DEMO"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_in_the_first_seconds_of_every_command_is_silent(arguments: tuple[str, ...], place: Path) -> None:
    for tenths in (0, 1, 3, 6, 10, 14, 18, 24):
        named = [f"{tenths}-{word}" if word.isupper() else word for word in arguments]
        status, errors = interrupted_after(tenths / 10, *named, cwd=place)
        assert "Traceback" not in errors
        # `report` says on stderr where it wrote to.
        assert errors == "" or (arguments[0] == "report" and "report.html" in errors)
        # 1 is a verdict of `diagnose`.
        assert status in (0, 130, -signal.SIGINT) or (arguments[0], status) == ("diagnose", 1)
