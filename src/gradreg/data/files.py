"""Where data files are, and how they are downloaded and read."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from gradreg.errors import DataError, words_of
from gradreg.reading import check_regular, read_bytes
from gradreg.writing import replacing

MOST = 1 << 28
"""Bytes that a data file may have, unpacked: the largest has 47 million."""
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
    if path.suffix != ".gz":
        return read_bytes(path, MOST)
    try:
        with unpacked(path, MOST) as stream:
            return stream.read()
    except (EOFError, OSError, zlib.error) as error:
        raise damaged(path, error) from error


@contextmanager
def unpacked(path: Path, most: int) -> Iterator[BinaryIO]:
    """A gzip file as a stream, which raises an error once more than `most` bytes have come out of it."""
    check_regular(path)
    with gzip.open(path) as file:
        yield cast("BinaryIO", io.BufferedReader(_Bounded(cast("BinaryIO", file), path, most)))


class _Bounded(io.RawIOBase):
    """A stream of at most so many bytes: some files unpack to a thousand times their size."""

    def __init__(self, inner: BinaryIO, path: Path, most: int) -> None:
        self.inner, self.path, self.most, self.left = inner, path, most, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.inner.read(len(buffer))
        self.left -= len(data)
        if self.left < 0:
            raise DataError(f"{self.path} must unpack to at most {self.most:,} bytes; got more: download it again.")
        buffer[: len(data)] = data
        return len(data)


def damaged(path: Path | str, why: object) -> DataError:
    """The error for a file that exists but is not valid."""
    return DataError(f"{path} is truncated or damaged ({' '.join(str(why).split())[:200]}): download it again.")


def download(url: str, path: Path, md5: str, wanted: str) -> None:
    """Download `url`, by https alone, to `path` if its checksum is right; `wanted` says which files to put where."""
    digest, size = hashlib.md5(usedforsecurity=False), 0
    try:
        _check_encrypted(url)
        with (
            replacing(path) as temporary,
            _opened(url) as response,
            temporary.open("wb") as file,
        ):
            while chunk := response.read(1 << 20):
                digest.update(chunk)
                file.write(chunk)
                size += len(chunk)
                if size > MOST:
                    raise ValueError(f"it has more than {MOST:,} bytes")
            if digest.hexdigest() != md5:
                raise ValueError("its checksum is wrong")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataError(f"{wanted}; downloading {url} failed ({words_of(error)}).") from error


class _Encrypted(urllib.request.HTTPRedirectHandler):
    """Refuses to be sent on to an address that is not https."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        _check_encrypted(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opened(url: str) -> BinaryIO:
    return cast("BinaryIO", urllib.request.build_opener(_Encrypted).open(url, timeout=_TIMEOUT_SECONDS))


def _check_encrypted(url: str) -> None:
    if not url.startswith("https://"):
        raise ValueError(f"downloads are made by https only, not from {url[:100]}")
