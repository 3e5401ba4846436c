"""Files that are written whole or not at all, on disks that are full, refuse, or are no disks."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from urllib.error import URLError

import pytest
import torch

from gradreg import storage
from gradreg.errors import ConfigError, StorageError
from gradreg.locks import lock
from gradreg.writing import is_temporary, replacing, sweep, write_text


def failing(path: Path, error: BaseException) -> None:
    with replacing(path) as temporary:
        temporary.write_text("half")
        raise error


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_text(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        temporary.with_name("of-a-library").touch()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, r"\(No space left on device\): free some space or choose another place\.$"),
        (errno.EDQUOT, r"\(Disk quota exceeded\): free some space or choose another place\.$"),
        (errno.EFBIG, r"\(File too large\): free some space or choose another place\.$"),
        (errno.EROFS, r"\(Read-only file system\): choose another place\.$"),
        (errno.EIO, r"\(Input/output error\): choose another place\.$"),
    ],
)
def test_a_disk_that_refuses_is_one_sentence_and_the_old_file_is_kept(number: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(StorageError, match=f"file could not be written {words}"):
        failing(path, OSError(number, os.strerror(number)))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_other_errors_are_not_told_as_those_of_a_disk(tmp_path: Path) -> None:
    for error in (ValueError("bug"), URLError("no route"), ConnectionResetError(errno.ECONNRESET, "reset")):
        with pytest.raises(type(error)) as caught:
            failing(tmp_path / "file", error)
        assert not isinstance(caught.value, StorageError)
    assert list(tmp_path.iterdir()) == []


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    """As root permissions do not bite, so these are refused to everybody."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for place, words in {"file/x": "Not a directory", "folder": "directory"}.items():
        with pytest.raises(StorageError, match=rf"could not be written \(.*{words}.*\): choose another place\.$"):
            write_text(tmp_path / place, "text")
    with pytest.raises(ConfigError, match="of names of at most 255"):
        write_text(tmp_path / ("x" * 300), "text")
    with pytest.raises(StorageError, match=r"Not a directory"):
        storage.write(tmp_path / "file" / "x", "thing", {"a": torch.ones(2)}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_names_as_long_and_odd_as_the_file_system_has_them(tmp_path: Path) -> None:
    for name in ("x" * 255, "ü" * 127, "a\nb", " ", os.fsdecode(b"\xff\xfe")):
        write_text(tmp_path / name, name)
        storage.write(tmp_path / name, "thing", {"a": torch.ones(2)}, {})
    assert len(list(tmp_path.iterdir())) == 5


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """`ulimit -f`: a write beyond it is a signal that Python ignores, and an error."""
    path = tmp_path / "file"
    storage.write(path, "thing", {"a": torch.ones(2)}, {"n": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StorageError, match=r"could not be written \(File too large\): free some space"):
            storage.write(path, "thing", {"a": torch.zeros(4096)}, {})
        with pytest.raises(StorageError, match=r"could not be written \(File too large\): free some space"):
            write_text(path, "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert storage.read(path, "thing")[1] == {"n": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "text"


def test_a_device_or_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root, `--output /dev/null` would make it a file."""
    write_text(Path(os.devnull), "text")
    assert Path(os.devnull).is_char_device()
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "text")
    reader.join()
    assert (read, pipe.is_fifo()) == (["text"], True)


KILLED = """
import os, signal, sys, torch
from pathlib import Path
from gradreg import storage, writing
real = storage.save_file
def save(tensors, path, metadata):
    real(tensors, path, metadata=metadata)
    Path(path).with_name(".tmpabc123").touch()
    os.kill(os.getpid(), signal.SIGKILL)
storage.save_file = save
storage.write(sys.argv[1], "thing", {"a": torch.ones(2)}, {})
"""


def test_what_a_kill_leaves_is_swept_by_name_or_all_of_it(tmp_path: Path) -> None:
    """Also what the library that writes has put beside it."""
    for name in ("mine", "other"):
        done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)])
        assert done.returncode == -signal.SIGKILL
    left = sorted(path.name for path in tmp_path.iterdir())
    assert [name[:6] for name in left] == [".mine.", ".other"]
    assert all(is_temporary(tmp_path / name) for name in left)
    (tmp_path / f".mine.{'0f' * 16}").touch()  # as gradreg 0.1.0 left it
    (tmp_path / ".mine.notes").touch()
    sweep(tmp_path, "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.notes", left[1]]
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mine.notes"]


def test_a_link_that_leads_out_of_a_folder_of_ours_is_refused(tmp_path: Path) -> None:
    """A run of somebody else may have one to a file of the user's, which resuming would replace."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    mine.write_text("precious")
    (theirs / "state").write_text("inside")
    (theirs / "newest").symlink_to("state")
    with lock(theirs):
        write_text(theirs / "newest", "through a link that stays inside")
    for target in (mine, tmp_path, "..", "/nowhere", "../mine"):
        (theirs / "metrics.jsonl").symlink_to(target)
        with pytest.raises(StorageError, match=r"metrics.jsonl could not be written: it is a link to"), lock(theirs):
            pass
        (theirs / "metrics.jsonl").unlink()
    assert mine.read_text() == "precious"
    (tmp_path / "link").symlink_to(theirs)  # a folder may be reached by a link
    with lock(tmp_path / "link"):
        pass
