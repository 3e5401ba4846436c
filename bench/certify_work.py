"""Where finished measurements lie, so that a run of hours that is interrupted goes on where it stopped."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from gradreg.errors import ConfigError, DataError
from gradreg.storage import replacing

Row = TypeVar("Row")
_ABOUT = "about.json"


class Work:
    """A folder with a JSON file for each finished measurement; without a folder nothing is kept.

    `about` is all that the figures depend on. A folder about something else is refused: its figures would be mixed
    with these.
    """

    def __init__(self, folder: Path | None = None, about: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        if folder is None:
            return
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is a file, but --work is a folder for what is finished.")
        wanted = json.loads(json.dumps(about or {}, default=str))
        kept = self._read(_ABOUT)
        if kept is None:
            if folder.exists() and any(folder.iterdir()):
                raise ConfigError(f"{folder} holds files that are not of this command: choose an empty --work folder.")
            self._write(_ABOUT, wanted)
        elif kept != wanted:
            differs = ", ".join(key for key in wanted if kept.get(key) != wanted[key]) or "version"
            raise ConfigError(
                f"{folder} holds measurements with other settings ({differs}): repeat the command with the settings it "
                "was started with, or choose another --work folder."
            )

    def path(self, name: str) -> Path | None:
        """A file of that name, for what keeps its own state while it is under way."""
        return None if self.folder is None else self.folder / name

    def rows(self, name: str, kind: Callable[..., Row], measure: Callable[[], list[Row]]) -> list[Row]:
        """The rows (dataclasses of that kind) of a measurement: those that are kept, else measured and kept."""
        kept = self._read(f"{name}.json")
        if kept is not None:
            return [kind(**{key: _back(value) for key, value in row.items()}) for row in kept]
        found = measure()
        self._write(f"{name}.json", [asdict(row) for row in found])  # type: ignore[call-overload]
        return found

    def numbers(self, name: str, measure: Callable[[], list[float]]) -> list[float]:
        """Plain figures, in the same way."""
        kept = self._read(f"{name}.json")
        if kept is None:
            kept = measure()
            self._write(f"{name}.json", kept)
        return list(kept)

    def _read(self, name: str) -> Any:
        path = self.path(name)
        if path is None or not path.is_file():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path} is damaged ({error}): delete it, and it is measured again.") from error

    def _write(self, name: str, content: object) -> None:
        path = self.path(name)
        if path is not None:
            # Figures that are not finite stay as they are: this file is read by nobody else.
            with replacing(path) as aside:
                aside.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def _back(value: object) -> object:
    """JSON knows no tuples."""
    return tuple(value) if isinstance(value, list) else value
