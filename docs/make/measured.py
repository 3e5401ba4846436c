"""Files of `python -m bench … --json`, as pages are made from them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradreg.errors import DataError


@contextmanager
def written_by(command: str, path: Path, option: str = "--json") -> Iterator[None]:
    """Inside, whatever is missing or damaged in the file becomes one sentence that names the command."""
    try:
        yield
    except (DataError, OSError, ValueError, KeyError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
        raise DataError(f"{path} must be a file that `python -m bench {command} {option}` wrote; got {got}.") from error
