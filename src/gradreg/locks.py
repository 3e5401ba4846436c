"""A lock against a second writer of a folder or a file, which says who holds it.

The operating system releases it when the process ends, however it ends, so that a marker that was left behind does not
block. The holder writes who it is into the marker: the process, the machine, the command, and since when.
"""

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from gradreg.codec import join
from gradreg.errors import ConfigError, DataError, GradregError
from gradreg.reading import one_sentence, read_json
from gradreg.writing import check_links, is_stream, make_folder, refusal, sweep

LOCK = ".lock"
_COMMAND = 120  # characters of it
_MARKER = 1 << 16  # bytes
_SETTLE = 0.5  # seconds in which a holder has written who it is
_AGAIN = 0.1


@dataclass(frozen=True)
class Holder:
    """Who writes."""

    pid: int
    host: str
    command: str
    since: str

    @classmethod
    def this(cls) -> "Holder":
        """This process."""
        name, *arguments = sys.argv or [""]
        program = Path(name).parent.name if Path(name).name == "__main__.py" else Path(name).name
        command = shlex.join([program, *arguments]) if program else "python"
        since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
        shown = command if len(command) <= _COMMAND else f"{command[: _COMMAND - 1]}…"
        return cls(os.getpid(), platform.node(), shown, f"{since} UTC")

    @classmethod
    def of(cls, marker: Path) -> "Holder | None":
        """As a marker has it; None where it says nothing that can be read."""
        try:
            with one_sentence(marker, "delete it"):
                found: Holder = join(cls, read_json(marker, _MARKER), {})
        except DataError:
            return None
        return found

    def is_gone(self) -> bool:
        """Whether that process is known to have ended; one of another machine is not."""
        if self.host != platform.node() or os.name != "posix":
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (`{self.command}`, since {self.since})"


@contextmanager
def lock(folder: Path, file: str = "") -> Iterator[None]:
    """Hold a folder, or one file in it, for this process alone, and remove what a killed one left half-written."""
    place = folder / file if file else folder
    marker = folder / f".{file}{LOCK}" if file else folder / LOCK
    try:
        make_folder(folder)
        if not file:
            check_links(folder)
        held = FileLock(marker)
        _acquire(held, marker)
        # A note, for others to read: without space for it the lock is one all the same.
        with suppress(OSError):
            marker.write_text(json.dumps(asdict(Holder.this())), encoding="utf-8")
        sweep(folder, file)
    except Timeout:
        holder = Holder.of(marker) or "another process"
        raise ConfigError(
            f"{place} is being written by {holder}; wait for it to end, or choose another place."
        ) from None
    except GradregError:
        raise
    except OSError as error:
        raise refusal(place, error.strerror or str(error), error.errno) from error
    try:
        yield
    finally:
        with suppress(OSError):
            marker.unlink(missing_ok=True)
        held.release()


@contextmanager
def lock_output(path: Path) -> Iterator[None]:
    """Hold the file that a result goes to; a device or a pipe needs no holding."""
    with nullcontext() if is_stream(path) else lock(path.parent, path.name):
        yield


def _acquire(held: FileLock, marker: Path) -> None:
    """Try again while the marker names nobody who lives: its holder comes or goes right now."""
    began = time.monotonic()
    while True:
        try:
            held.acquire(blocking=False)
            return
        except Timeout:
            holder = Holder.of(marker)
            named = holder is not None and not holder.is_gone()
            if named or time.monotonic() - began >= _SETTLE:
                raise
            time.sleep(_AGAIN)
