"""Smaller copies of an image folder: a phase that trains on small images need not decode large ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from gradreg.checks.fields import check_fields, conform
from gradreg.checks.scalars import Range, shown
from gradreg.data.decode import as_rgb, need_pillow, opened
from gradreg.data.folder import listing, load
from gradreg.data.labelled import table_in
from gradreg.errors import DataError, StorageError
from gradreg.locks import LOCK, lock
from gradreg.reading import read_json
from gradreg.storage import write_json
from gradreg.writing import is_temporary, replacing, sweep

if TYPE_CHECKING:
    from PIL.Image import Image

_LOSSY = (".jpg", ".jpeg", ".jpe", ".jfif", ".webp")  # all other formats lose nothing, so their copies are PNG
_NOTE = "resized.json"
_CHUNK = 32  # files that a worker is given at a time

_ENDS = {".jpg": b"\xff\xd9", ".jpeg": b"\xff\xd9", ".png": b"IEND\xaeB\x60\x82"}

ShorterSide = Annotated[int, Range(least=1, ends=10_000, usual="the shorter side in pixels")]
Quality = Annotated[int, Range(least=1, most=95, usual="of JPEG files")]
Workers = Annotated[int, Range(least=0, ends=1024, usual="0 uses this process alone")]


@dataclass(frozen=True)
class Copies:
    """Which copies are made, and how: at most `size` pixels along the shorter side, JPEG of that quality or PNG."""

    source: Path
    destination: Path
    size: ShorterSide
    quality: Quality = 90

    def __post_init__(self) -> None:
        check_fields(self)
        if self.destination.is_relative_to(self.source) or self.source.is_relative_to(self.destination):
            raise DataError(
                f"{self.destination} and {self.source} must not contain each other: choose another destination."
            )

    @property
    def settings(self) -> dict[str, int]:
        """The settings that all copies in one destination share."""
        return {"size": self.size, "quality": self.quality}

    def target(self, path: Path) -> Path:
        """x.jpg, x.JPEG and x.png keep their names; x.bmp becomes x.bmp.png and x.webp becomes x.webp.jpg."""
        suffix = path.suffix.lower()
        added = "" if suffix in _ENDS else ".jpg" if suffix in _LOSSY else ".png"
        return self.destination / path.relative_to(self.source).with_name(path.name + added)


@dataclass(frozen=True)
class Resized:
    """How many copies were made, how many an interrupted run had made, and an error message for each that failed."""

    made: int = 0
    kept: int = 0
    failures: tuple[str, ...] = ()

    def __add__(self, other: Resized) -> Resized:
        return Resized(self.made + other.made, self.kept + other.kept, self.failures + other.failures)

    def __len__(self) -> int:
        return self.made + self.kept + len(self.failures)


def resize(
    source: Path,
    destination: Path,
    *,
    size: int,
    quality: int = 90,
    workers: int | None = None,
    console: Console | None = None,
) -> Resized:
    """Copies of all images under `source`, in the same folders under `destination`. `workers`: default, all processors.

    Images are never enlarged, become RGB and lose what is written beside the pixels. An orientation noted there is not
    applied, as it is not when the originals are read. Copies that are there are kept, so the same call continues what
    was interrupted. A file that cannot be read does not keep the others from being copied.
    """
    need_pillow()
    workers = conform("workers", workers, Workers | None)
    copies = Copies(source.expanduser().resolve(), destination.expanduser().resolve(), size, quality)
    paths = _paths(copies)
    _check_destination(copies)  # before a lock file is put into somebody else's folder
    done = Resized()
    with lock(copies.destination), _bar(console) as bar:
        _prepare(copies)
        task = bar.add_task("", total=len(paths))
        for part in _run(paths, copies, _processors() if workers is None else workers):
            done += part
            bar.advance(task, len(part))
    if done.failures:
        others = len(done.failures) - 1
        raise DataError(done.failures[0] + (f" The same holds for {others} other files." if others else ""))
    return done


def copy(path: Path, copies: Copies) -> bool:
    """Make a copy unless it exists, and return whether it was made; an interrupted one leaves no file."""
    target = copies.target(path)
    if complete(target):
        return False
    with opened(path) as image:
        small = shrunk(image, copies.size)
    lossy = target.suffix.lower() in _LOSSY
    # Thousands of small files: none waits for the disk, since one that is cut short is made again.
    with replacing(target, durable=False) as temporary:
        small.save(temporary, **({"format": "JPEG", "quality": copies.quality} if lossy else {"format": "PNG"}))
    return True


def shrunk(image: Image, size: int) -> Image:
    """In RGB, with a shorter side of at most `size` pixels."""
    import PIL.Image

    short = min(image.size)
    width, height = (max(1, round(side * size / short)) for side in image.size) if short > size else image.size
    image.draft(None, (2 * width, 2 * height))  # JPEG is decoded at a half, a quarter or an eighth if that is enough
    small = as_rgb(image).resize((width, height), PIL.Image.Resampling.LANCZOS)
    small.info = {}  # comments, colour profiles and transparency would be written too
    return small


def complete(path: Path) -> bool:
    """Whether an image file is there up to its end mark."""
    end = _ENDS[path.suffix.lower()]
    try:
        with path.open("rb") as file:
            file.seek(-len(end), os.SEEK_END)
            return file.read() == end
    except OSError:  # not there, or shorter than the mark
        return False


def _paths(copies: Copies) -> list[str]:
    """Every image of the folder; no two may have the same copy."""
    source = copies.source
    if source.is_dir() and not (source / "train").is_dir() and (table := table_in(source)) is not None:
        raise DataError(
            f"{source} must have its images in class folders below train/ and val/ to be resized; got a table, "
            f"{table.name}: put each image into the folder of its class."
        )
    parts = list(load(source))
    if (source / "val").is_dir() and (source / "test").is_dir():
        parts.append(listing(source / "test"))
    paths = [path for part in parts for path in part.paths]
    known = set(paths)
    for path in map(Path, paths):
        name = copies.target(path).name
        if name != path.name and str(path.with_name(name)) in known:
            raise DataError(f"{path} and {path.with_name(name)} would have the same copy: rename one of them.")
    return paths


def _check_destination(copies: Copies) -> None:
    """Reject a folder that holds anything else than such copies."""
    folder, note = copies.destination, copies.destination / _NOTE
    if note.is_file():
        before = read_json(note)
        if before != copies.settings:
            raise DataError(f"{folder} holds copies made with {shown(before)}, not {copies.settings}: choose another.")
    elif folder.exists() and not (folder.is_dir() and all(_is_ours(path) for path in folder.iterdir())):
        raise DataError(f"{folder} is not empty and holds no copies made by gradreg: choose another destination.")


def _is_ours(path: Path) -> bool:
    """Whether a process that was killed before its first copy may have left that."""
    return path.name == LOCK or is_temporary(path)


def _prepare(copies: Copies) -> None:
    """Record in the folder how its copies are made, and remove what a kill left half-written."""
    _check_destination(copies)
    for place, _, _ in os.walk(copies.destination):
        sweep(Path(place))
    if not (copies.destination / _NOTE).is_file():
        write_json(copies.destination / _NOTE, copies.settings)


def _run(paths: list[str], copies: Copies, workers: int) -> Iterator[Resized]:
    """Chunk by chunk, in any number of processes."""
    chunks = [paths[first : first + _CHUNK] for first in range(0, len(paths), _CHUNK)]
    work = partial(_copy_all, copies=copies)
    if workers == 0:
        yield from map(work, chunks)
        return
    with ProcessPoolExecutor(workers, _processes(), initializer=_ignore_interrupts) as pool:
        try:
            yield from pool.map(work, chunks)
        except BrokenProcessPool as error:
            raise DataError(
                "A worker process was killed, perhaps for lack of memory: run the command again, with fewer workers."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _copy_all(paths: list[str], copies: Copies) -> Resized:
    done = Resized()
    for path in paths:
        try:
            made = copy(Path(path), copies)
            done += Resized(made=int(made), kept=int(not made))
        except (DataError, StorageError) as error:
            done += Resized(failures=(str(error),))
    return done


def _ignore_interrupts() -> None:
    """Ctrl-C goes to all processes of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _processes() -> BaseContext:
    """Forked from a server that has this module loaded; from this process, fork would copy whatever threads it has."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f} images/s" if task.speed else "")


def _bar(console: Console | None) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    hidden = console is None or not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=hidden)
