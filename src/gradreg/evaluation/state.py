"""What an evaluation has finished so far, in FOLDER/.state, so that it can be killed anywhere and continued."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from gradreg import storage
from gradreg.codec import join, split
from gradreg.errors import ConfigError, DataError
from gradreg.evaluation.files import FACTS, dumps
from gradreg.evaluation.record import Origin

T = TypeVar("T")

_STAGE = "stage of an evaluation"
_HEAD = "begun.json"
_EVERY = 1.0  # seconds


class State:
    """Finished stages by name, the seconds they took, and files for what is half done.

    `about` says what they belong to: a folder that was begun about something else is refused. Only the process that
    `writes` changes anything here, but for files that carry its own rank.
    """

    def __init__(self, folder: Path, about: Mapping[str, str], origin: Origin, writes: bool) -> None:
        self.folder, self.writes, self.now = folder / ".state", writes, origin
        head = self.folder / _HEAD
        if head.is_file():
            self.origin = self._same(folder, _read(head), about)
        elif (folder / FACTS).exists():
            raise ConfigError(f"{folder} holds a finished evaluation: choose another folder (--out), or delete it.")
        else:
            self.origin = origin
            if writes:
                try:
                    _write(head, {"about": dict(about), "origin": vars(origin)})
                except OSError as error:
                    raise ConfigError(f"{folder} cannot be written to ({error}): choose another --out.") from error
        if writes:
            for place in (folder, self.folder):
                storage.sweep(place)

    def load(self, stage: str, kind: type[T]) -> T | None:
        """The result of a stage, if it was finished."""
        if not self.finished(stage):
            return None
        path = self.path(f"{stage}.done.safetensors")
        tensors, facts = storage.read(path, _STAGE)
        try:
            value: T = join(kind, facts["value"], tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is of another version of gradreg: delete it to compute it again.") from error
        return value

    def save(self, stage: str, value: object) -> None:
        """Finish a stage."""
        if self.writes:
            plain, tensors = split(value)
            storage.write(self.path(f"{stage}.done.safetensors"), _STAGE, tensors, {"value": plain})

    def finished(self, stage: str) -> bool:
        """Whether a stage was finished."""
        return self.path(f"{stage}.done.safetensors").is_file()

    def path(self, name: str) -> Path:
        """A file for work that is half done."""
        return self.folder / name

    def timer(self, stage: str) -> "Timer":
        """The seconds spent on a stage, those before an interruption included."""
        return Timer(self.path(f"{stage}.seconds.json"), self.writes)

    def _same(self, folder: Path, begun: Mapping[str, Any], about: Mapping[str, str]) -> Origin:
        before = begun["about"]
        different = [name for name in sorted({*before, *about}) if before.get(name) != about.get(name)]
        if different:
            raise ConfigError(
                f"{folder} was begun as another evaluation (other {', other '.join(different)}): choose another folder "
                "(--out), or delete it."
            )
        return Origin(**begun["origin"])


class Timer:
    """A clock that goes on where it stood when the process was killed."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.before = float(_read(path)["seconds"]) if path.is_file() else 0.0
        self.began = self.noted = perf_counter()

    @property
    def seconds(self) -> float:
        """So far."""
        return self.before + perf_counter() - self.began

    def watching(self, progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """`progress` as a callback that also notes the time."""

        def tick(done: int, total: int) -> None:
            if self.writes and perf_counter() - self.noted > _EVERY:
                _write(self.path, {"seconds": self.seconds})
                self.noted = perf_counter()
            progress(done, total)

        return tick


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): delete the folder's .state to start over.") from error
    return content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with storage.replacing(path) as temporary:
        temporary.write_bytes(dumps(content))
