"""Files that are written whole or not at all: into a hidden folder beside their place, then renamed.

Every file of gradreg is written here. A kill at any instant leaves the file that was there before, and at most such a
hidden folder, which `sweep` removes. A disk that is full or refuses is an error of one sentence.
"""

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from gradreg.checks.scalars import check_path
from gradreg.errors import StorageError

# Of file systems, in contrast to those of the network, whose errors are OSErrors too.
_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENXIO, errno.EMFILE, errno.ENFILE, errno.EEXIST}
_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY}
_LIBRARY = re.compile(r"I/O error: (?P<words>.*?) \(os error (?P<number>\d+)\)")

# Characters of a file's name in that of its temporary folder, which may have 255 bytes.
_NAMED = 50
_UNIQUE = r"\.[0-9a-f]{32}"
_TEMPORARY = re.compile(rf"\..+{_UNIQUE}")


@contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """A place to write to; what is there takes the place of `path` only if nothing went wrong.

    It lies in a folder of its own, since libraries make temporary files beside what they write. `durable` waits until
    the disk has it. A link stays one: the file that it leads to is replaced. A device or a pipe is written to as it is.
    """
    path = check_path("path", path)
    with naming(path):
        if is_stream(path):
            yield path
            return
        path = Path(os.path.realpath(path))
        make_folder(path.parent)
        aside = path.with_name(f".{path.name[:_NAMED]}.{uuid.uuid4().hex}")
        aside.mkdir()
        try:
            temporary = aside / path.name
            yield temporary
            if durable:
                _wait_for_disk(temporary)
            temporary.replace(path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8; half a surrogate pair, from a file's name, is written as its escape."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; one that is there is kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # Python's word for a file in the place of a folder
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None


def check_links(folder: Path) -> None:
    """Refuse a folder of gradreg's own files in which a link leads out of it.

    Somebody else may have made the folder, and what is written to such a link would replace a file elsewhere.
    """
    home = Path(os.path.realpath(folder))
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and home not in Path(os.path.realpath(path)).parents:
            raise StorageError(
                f"{path} could not be written: it is a link to {os.path.realpath(path)}, outside of its folder; put a "
                "copy of that in its place."
            )


def sweep(folder: Path, file: str = "") -> None:
    """Remove what a kill in the middle of `replacing` left behind, of one file or of all files in a folder.

    Only who holds the lock may do that: others may be writing.
    """
    ours = re.compile(re.escape(f".{file[:_NAMED]}") + _UNIQUE) if file else _TEMPORARY
    for path in folder.iterdir():
        if ours.fullmatch(path.name):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:  # of gradreg 0.1.0
                path.unlink(missing_ok=True)


def is_temporary(path: Path) -> bool:
    """Whether that is what a kill left behind, by its name."""
    return _TEMPORARY.fullmatch(path.name) is not None


def is_stream(path: Path) -> bool:
    """Whether that is a device, a pipe or a socket, such as /dev/null, which must not be replaced by a file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _wait_for_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Inside, what the disk refuses is an error of one sentence about this file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        if error.errno not in _SPACE | _REFUSED | _PLACE:
            raise
        raise refusal(path, error.strerror or str(error), error.errno) from error
    except SafetensorError as error:
        found = _LIBRARY.search(str(error))
        if found is None:
            raise
        raise refusal(path, found["words"], int(found["number"])) from error


def refusal(path: Path, words: str, number: int | None) -> StorageError:
    """The error for a file that could not be written, with what the system said and its number."""
    remedy = "free some space or choose another place" if number in _SPACE else "choose another place"
    return StorageError(f"{path} could not be written ({words}): {remedy}.")
