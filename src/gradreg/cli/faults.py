"""How a command ends when something around it fails: one sentence or silence, and a status that shells know.

0 it is done · 2 a mistake or a fault, in one sentence on stderr · 128 + N it was ended by signal N, where a pipe that
nobody reads any more counts as SIGPIPE. Commands with other endings say so in their help.
"""

import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from types import FrameType
from typing import Any

from gradreg.errors import GradregError, GradregWarning

_TROUBLE = 2
_INTERRUPTED = 128 + signal.SIGINT
# Windows has no SIGPIPE; its number is 13 wherever there is one.
_UNREAD = 128 + 13
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
# Columns. The library that lays out help does not end in fewer than six.
_NARROWEST = 20
_AGAIN = 0.01  # seconds
_SCARCE = ("can't allocate memory", "not enough memory", "out of memory")


@contextmanager
def guarded() -> Iterator[None]:
    """Run a command in here; faults of the machine, signals and users' mistakes end as this module says."""
    _open_streams()
    with _ending_by_exception(), _warnings_as_sentences():
        try:
            try:
                yield
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            _leave(_UNREAD)
        except GradregError as mistake:
            _leave(_TROUBLE, str(mistake))
        except OSError as fault:
            _leave(_TROUBLE, _refusal(fault))
        except MemoryError as fault:
            _leave(_TROUBLE, _scarcity(fault))
        except RuntimeError as fault:
            if not any(words in str(fault).lower() for words in _SCARCE):
                raise
            _leave(_TROUBLE, _scarcity(fault))
        except KeyboardInterrupt:
            _leave(_INTERRUPTED)


@contextmanager
def interrupts_end_at_once(*, for_good: bool) -> Iterator[None]:
    """Ctrl-C simply ends the process in here, as it may while modules are imported and there is nothing to save.

    As an exception it would surface in the middle of some library, which may report it or take it for a failure. With
    `for_good` it stays so afterwards, while the interpreter takes itself down.
    """
    usual = _in_charge() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if usual and not for_good:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def interrupts_raise() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt in here, as Python has it."""
    usual = _in_charge() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    before = sys.unraisablehook

    def again(lost: "sys.UnraisableHookArgs") -> None:
        # It hit a destructor or a callback, where Python prints exceptions and drops them. Send it once more.
        if isinstance(lost.exc_value, KeyboardInterrupt):
            threading.Timer(_AGAIN, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            before(lost)

    try:
        sys.unraisablehook = again
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.unraisablehook = before


@contextmanager
def _ending_by_exception() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command by an exception, so that half-written files and locks are removed."""
    numbers = [each for each in _ENDING if _in_charge() and signal.getsignal(each) is signal.SIG_DFL]

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """Of gradreg's own warnings the sentence alone is shown: the line of code that led to it is none of the user's."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, GradregWarning):
            before(message, category, *where, **more)
            return
        with suppress(OSError, ValueError):
            sys.stderr.write(f"gradreg: warning: {_printable(str(message))}\n")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _in_charge() -> bool:
    """Only the main thread may set handlers."""
    return threading.current_thread() is threading.main_thread()


def _open_streams() -> None:
    """Standard streams that take whatever is written.

    A stream that was closed (`>&-`) becomes the null device: the next file to be opened would get its number, and
    whatever is printed. Signs that a terminal's encoding lacks, or bytes of a file's name, are written as escapes.
    A terminal that is too narrow for any line is taken for a wider one.
    """
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115, open to the end
        elif isinstance(stream, TextIOWrapper) and mode == "w":
            stream.reconfigure(errors="backslashreplace")
    if shutil.get_terminal_size().columns < _NARROWEST:
        os.environ["COLUMNS"] = str(_NARROWEST)


def _leave(status: int, sentence: str = "") -> None:
    """End with that status, after the sentence; what a stream cannot take is dropped with what it still holds."""
    for stream, text in ((sys.stdout, ""), (sys.stderr, f"gradreg: {_printable(sentence)}\n" if sentence else "")):
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            # The interpreter flushes once more at its end, and would complain.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


def _printable(sentence: str) -> str:
    """One line, whatever signs the name of a file has that it quotes."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in sentence)


def _refusal(fault: OSError) -> str:
    words = (fault.strerror or str(fault) or type(fault).__name__).rstrip(".")
    if fault.filename is None:
        return f"The operating system refused: {words}."
    return f"{os.fsdecode(fault.filename)} cannot be used: {words}."


def _scarcity(fault: BaseException) -> str:
    words = " ".join(str(fault).split()).rstrip(".")
    return f"Memory ran out{f' ({words})' if words else ''}: use smaller batches or fewer images, or a larger machine."
