"""Work that can be interrupted and continued: what it is about, its finished parts, and one writer at a time.

A folder holds

    begun.json               what the work is about, and facts noted when it was begun
    NAME.done.safetensors    a finished part
    NAME.seconds.json        the seconds spent on a part so far
    .lock                    held while somebody writes

Work that is kept in one file of its own, such as a pool of attack results, has its `about` in that file and is checked
by `check_same`.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from gradreg import storage
from gradreg.codec import join, split
from gradreg.errors import ConfigError, DataError, StorageError
from gradreg.locks import lock
from gradreg.reading import one_sentence, read_json
from gradreg.stopwatch import Stopwatch

_KIND = "part of a ledger"
_HEAD = "begun.json"
_DONE = ".done.safetensors"
_EVERY = 1.0  # seconds
_CENTURY = 3.2e9  # seconds

_About = Mapping[str, str]
"""What results depend on, by name: a fingerprint of the images, of the weights, the settings."""


class Ledger:
    """The finished parts of one piece of work by name; `with` holds the lock while it is written.

    A folder that was begun about something else is refused. Of several processes only the one that `writes` changes
    anything here, except for parts of its own. Without a folder nothing is kept.
    """

    def __init__(
        self, folder: Path | None, about: _About, *, noted: Mapping[str, Any] | None = None, writes: bool = True
    ) -> None:
        self.folder, self.about, self.writes = folder, about, writes and folder is not None
        self.noted: Mapping[str, Any] = dict(noted or {})
        """Facts of the moment when the work was begun, which may be before this process."""
        self._key = storage.checksum(dict(about))
        self._held = ExitStack()

    def __enter__(self) -> Self:
        if self.folder is None:
            return self
        _check_own(self.folder)
        with ExitStack() as held:
            if self.writes:
                held.enter_context(lock(self.folder))
            head = self.folder / _HEAD
            # Whatever has its name is read: a pipe in its place is refused there, and would be waited for when written.
            if head.exists():
                begun = _read(head)
                check_same(self.folder, begun["about"], self.about)
                self.noted = {name: value for name, value in begun.items() if name != "about"}
            elif self.writes:
                storage.write_json(head, storage.sealed({"about": dict(self.about), **self.noted}))
            self._held = held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.close()

    def finished(self, name: str) -> bool:
        """Whether that part is finished."""
        return self.folder is not None and (self.folder / f"{name}{_DONE}").exists()

    def load(self, name: str, kind: Any) -> Any:
        """A finished part as a value of type `kind` (a dataclass, or a tuple of them); None if it is not finished."""
        if self.folder is None or not self.finished(name):
            return None
        path = self.folder / f"{name}{_DONE}"
        tensors, facts = storage.read(path, _KIND)
        # Parts of before these were noted have neither.
        if facts.get("name", name) != name or facts.get("of", self._key) != self._key:
            raise DataError(f"{path} is a part of other work; delete it to compute it again.")
        with one_sentence(path, "delete it to compute it again"):
            return join(kind, facts["value"], tensors)

    def save(self, name: str, value: object, *, own: bool = False) -> None:
        """Finish a part; with `own`, one that no other process works on, whichever process this is."""
        if self.folder is not None and (self.writes or own):
            plain, tensors = split(value)
            facts = {"value": plain, "name": name, "of": self._key}
            storage.write(self.folder / f"{name}{_DONE}", _KIND, tensors, facts)

    def once(self, name: str, kind: Any, compute: Callable[[], Any], *, own: bool = False) -> Any:
        """A part as it was kept; computed and kept if it was not."""
        found = self.load(name, kind)
        if found is None:
            found = compute()
            self.save(name, found, own=own)
        return found

    def path(self, name: str) -> Path | None:
        """A file for a part that keeps its own state while it is under way; None if nothing is kept."""
        return None if self.folder is None else self.folder / name

    def drop(self, pattern: str) -> None:
        """Remove files that finished parts have made superfluous."""
        for path in self.folder.glob(pattern) if self.folder is not None else ():
            path.unlink(missing_ok=True)

    def timer(self, name: str) -> "Timer":
        """The seconds spent on a part, those before an interruption included."""
        return Timer(self.path(f"{name}.seconds.json") if self.writes else None)


class Timer:
    """A clock that goes on where it stood when the process was killed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._before = _noted_seconds(path)
        self._watch, self._noted = Stopwatch(), perf_counter()

    @property
    def seconds(self) -> float:
        """So far."""
        return self._before + self._watch.seconds

    def watching(self, progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """`progress` as a callback that also notes the time."""

        def tick(done: int, total: int) -> None:
            self._watch.lap()
            if self._path is not None and perf_counter() - self._noted > _EVERY:
                with suppress(StorageError):  # a clock is not worth stopping for
                    storage.write_json(self._path, {"seconds": self.seconds})
                self._noted = perf_counter()
            progress(done, total)

        return tick


def check_same(place: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue work that was begun about something else."""
    different = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if different:
        raise ConfigError(
            f"{place} was begun with other {', other '.join(different)}; continue it with the same ones, choose "
            "another place, or delete it."
        )


def begun_about(folder: Path) -> Mapping[str, Any]:
    """What a folder's work was begun about and the facts noted then; empty if it holds no ledger that can be read."""
    try:
        return _read(folder / _HEAD)
    except DataError:
        return {}


def _noted_seconds(path: Path | None) -> float:
    """0 where none were noted, or a kill or a stranger left something else: a clock is not worth stopping for."""
    if path is None or not path.is_file():
        return 0.0
    try:
        return join(_Seconds, read_json(path), {}).seconds  # type: ignore[no-any-return]
    except DataError:
        return 0.0


def _check_own(folder: Path) -> None:
    """Refuse a folder that holds files of another kind than are kept here, such as one named by mistake."""
    if folder.is_dir() and not (folder / _HEAD).is_file():
        visible = (path.name for path in folder.iterdir() if not path.name.startswith("."))
        others = sorted(name for name in visible if not name.endswith((".json", ".safetensors")))
        if others:
            raise ConfigError(f"{folder} must be a new folder, or one where such work was begun; it holds {others[0]}.")


@dataclass(frozen=True)
class _Seconds:
    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < _CENTURY:
            raise DataError(f"seconds must be between 0 and those of a century; got {self.seconds}.")


def _read(path: Path) -> dict[str, Any]:
    """The head of a ledger, which must say what it is about."""
    with one_sentence(path, "delete the folder to start over"):
        content = storage.unsealed(read_json(path), path)
        join(Mapping[str, str], content.get("about"), {}, "about")
    return content
