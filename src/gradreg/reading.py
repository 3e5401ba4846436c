"""Files that anybody may have written: regular ones of bounded size and depth, or an error of one sentence.

Every reader of gradreg gets its bytes, JSON and TOML from here, so that none of them can hang on a pipe, fill the
memory, exhaust the stack, or end in an exception of a library.
"""

import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from gradreg.checks.scalars import check_path
from gradreg.errors import DataError, GradregError

TEXT = 1 << 24
"""Bytes that a JSON file may have: as Python objects they can take 20 times as many."""
_TOML = 1 << 18
_PART = 1 << 20
DEPTH = 40
"""Tables and lists that a file may have inside each other."""
# tomllib takes quadratic time for a key of many dots.
_KEY = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_LONG_KEY = re.compile(rf"(?<![\w-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{DEPTH}}}")


def check_regular(path: str | os.PathLike[str]) -> int:
    """The size of a regular file; a pipe, a socket or a device, which may never end, is refused."""
    check_path("path", path, DataError)
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({_words(error)}).") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "folder" if stat.S_ISDIR(found.st_mode) else "pipe, socket or device"
        raise DataError(f"{path} must be a regular file; got a {kind}.")
    return found.st_size


def read_bytes(path: str | os.PathLike[str], most: int = TEXT) -> bytes:
    """The content of a regular file of at most that many bytes."""
    if (size := check_regular(path)) > most:
        raise DataError(f"{path} must have at most {most:,} bytes; got {size:,}.")
    parts: list[bytes] = []
    with opened(path) as file:
        while part := file.read(_PART):  # asked for more than there is, Python would take the memory for it
            parts.append(part)
            if len(parts) * _PART > most + _PART:
                raise DataError(f"{path} must have at most {most:,} bytes; got more, since it grows.")
    return b"".join(parts)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A regular file, open for reading; an OSError until it is closed becomes a DataError."""
    check_regular(path)
    try:
        with open(path, "rb", opener=_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DataError(f"{path} must be a regular file; got something else, since it was replaced just now.")
            yield file
    except OSError as error:
        raise DataError(f"{path} cannot be read ({_words(error)}).") from error


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting, as one would for the other end of a pipe that took the file's place since it was seen."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_text(path: str | os.PathLike[str], most: int = TEXT) -> str:
    """The content of a regular file of UTF-8."""
    return _decoded(read_bytes(path, most), str(path))


def read_toml(path: str | os.PathLike[str]) -> str:
    """The text of a TOML file; `toml_table` parses it."""
    return read_text(path, _TOML)


def toml_table(text: str, source: str) -> dict[str, Any]:
    """The table in a TOML text; `source` names it in errors."""
    if len(text) > _TOML:
        raise DataError(f"{source} must have at most {_TOML:,} characters; got {len(text):,}.")
    if _LONG_KEY.search(text):
        raise _too_deep(source)
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:
        raise DataError(f"{source} is not valid TOML: {_words(error)}.") from None
    _check_depth(table, source)
    return table


def read_json(path: str | os.PathLike[str], most: int = TEXT) -> dict[str, Any]:
    """The object in a JSON file."""
    return json_table(read_bytes(path, most), str(path))


def json_table(raw: bytes | str, source: str, *, nonfinite: bool = False) -> dict[str, Any]:
    """The object in a JSON text, without a key twice, numbers beyond floats or, unless allowed, NaN and infinity."""
    text = raw if isinstance(raw, str) else _decoded(raw, source)
    try:
        found = json.loads(
            text,
            object_pairs_hook=_without_repetition,
            parse_float=_finite,
            parse_constant=None if nonfinite else _refused,
        )
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:
        raise DataError(f"{source} is not valid JSON: {_words(error)}.") from None
    if not isinstance(found, dict):
        raise DataError(f"{source} must hold a JSON object; got {_kind(found)}.")
    _check_depth(found, source)
    return found


@contextmanager
def one_sentence(source: object, remedy: str) -> Iterator[None]:
    """Turn whatever goes wrong while something is made of a file's content into a DataError.

    It names the file and what to do, also where the error was made without knowing them.
    """
    try:
        yield
    except GradregError as error:
        words = str(error).rstrip(".")
        named = words if str(source) in words else f"{source} is damaged: {words}"
        raise DataError(f"{named}; {remedy}.") from error
    except Exception as error:
        raise DataError(f"{source} is damaged ({type(error).__name__}: {_words(error)}); {remedy}.") from error


@contextmanager
def naming(source: object, otherwise: str) -> Iterator[None]:
    """Put the file before whatever goes wrong with what it asks for: no damage, perhaps, but a package that is missing.

    An error that is not gradreg's becomes a DataError, in which `otherwise` says what failed.
    """
    try:
        yield
    except GradregError as error:
        raise type(error)(str(error) if str(source) in str(error) else f"{source}: {error}") from error
    except Exception as error:
        raise DataError(f"{source}: {otherwise} ({type(error).__name__}: {_words(error)}).") from error


def _decoded(raw: bytes, source: str) -> str:
    """The text, without the byte order mark that tools on Windows put before UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{source} must be UTF-8 text; got {_words(error)}.") from None


def _check_depth(found: Any, source: str) -> None:
    """Breadth first, since a deep value would exhaust the stack of a recursive function."""
    level = [found]
    for _ in range(DEPTH):
        inside: list[Any] = []
        for value in level:
            inside += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not inside:
            return
        level = inside
    raise _too_deep(source)


def _too_deep(source: str) -> DataError:
    return DataError(f"{source} is nested too deeply: a table holds at most {DEPTH} others inside each other.")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name[:40]!r} is there twice")
        found[name] = value
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is beyond the largest number")
    return value


def _refused(word: str) -> float:
    raise ValueError(f"{word} is not a number of JSON")


def _kind(value: object) -> str:
    return type(value).__name__


def _words(error: BaseException) -> str:
    """A library's message on one line, without the full stop at its end; cut short, since it may quote the file."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(words.split())[:200].rstrip(".") or type(error).__name__
