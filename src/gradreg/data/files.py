"""Where data files are, and how they are downloaded and read."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import urllib.request
import zlib
from pathlib import Path

from gradreg.errors import DataError
from gradreg.storage import replacing

_TIMEOUT_SECONDS = 30


def data_root(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The argument, else $GRADREG_DATA, else the user's cache folder; only the last is created if it is missing."""
    chosen = data_dir or os.environ.get("GRADREG_DATA")
    if chosen:
        root = Path(chosen).expanduser()
        if not root.is_dir():
            raise DataError(f"The data directory {root} does not exist: create it, or pass another.")
        return root
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gradreg"
    except RuntimeError:
        raise DataError("There is no home folder to keep data in: pass --data-dir, or set $GRADREG_DATA.") from None


def read(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, error) from error


def damaged(path: Path | str, why: object) -> DataError:
    """The error for a file that exists but is not valid."""
    return DataError(f"{path} is truncated or damaged ({why}): download it again.")


def download(url: str, path: Path, md5: str, wanted: str) -> None:
    """Download `url` to `path` if its checksum is right; `wanted` tells in the error which files to put where."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with (
            replacing(path) as temporary,
            urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response,
            temporary.open("wb") as file,
        ):
            while chunk := response.read(1 << 20):
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != md5:
                raise ValueError("its checksum is wrong")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataError(f"{wanted}; downloading {url} failed ({error}).") from error
