"""Smaller copies of an image folder: right sizes, right pixels, nothing half done."""

from __future__ import annotations

import io
import json
import os
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from rich.console import Console

from gradreg.data import load, resize
from gradreg.data.resize import complete
from gradreg.errors import ConfigError, DataError, GradregError


def picture(width: int, height: int) -> PIL.Image.Image:
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return PIL.Image.fromarray(np.stack([x, y, (x + y) / 2], 2).astype(np.uint8))


def save(path: Path, image: PIL.Image.Image, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)  # type: ignore[arg-type]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    for part in ("train", "val"):
        save(root / part / "cat" / "wide.JPEG", picture(400, 300), exif=exif, comment=b"mine")
        save(root / part / "cat" / "small.jpg", picture(50, 30))
        save(root / part / "cat" / "inner" / "tall.png", picture(90, 240))
        save(root / part / "dog" / "grey.bmp", picture(200, 200).convert("L"))
        save(root / part / "dog" / "see-through.png", picture(130, 120).convert("RGBA"), icc_profile=b"colours")
    (root / "train" / "dog" / "notes.txt").write_text("no image")
    return root


# What becomes of the files of one part when the shorter side is to be 60.
COPIES = {
    "cat/inner/tall.png": (60, 160, "PNG"),
    "cat/small.jpg": (50, 30, "JPEG"),
    "cat/wide.JPEG": (80, 60, "JPEG"),
    "dog/grey.bmp.png": (60, 60, "PNG"),
    "dog/see-through.png": (65, 60, "PNG"),
}


def files(root: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


@pytest.mark.parametrize("workers", [0, 2])
def test_copies_have_the_right_names_sizes_and_pixels(source: Path, tmp_path: Path, workers: int) -> None:
    target = tmp_path / "small"
    done = resize.resize(source, target, size=60, workers=workers)
    assert (done.made, done.kept) == (10, 0)
    expected = [f"{part}/{name}" for part in ("train", "val") for name in COPIES]
    assert sorted(files(target)) == sorted([*expected, "resized.json"])
    for name in expected:
        width, height, kind = COPIES[name.partition("/")[2]]
        with PIL.Image.open(target / name) as copied, PIL.Image.open(source / name.replace("p.png", "p")) as original:
            assert (copied.size, copied.mode, copied.format) == ((width, height), "RGB", kind)
            assert not copied.getexif()
            assert not {"comment", "icc_profile", "transparency", "exif"} & copied.info.keys()
            exact = original.convert("RGB").resize((width, height), PIL.Image.Resampling.LANCZOS)
            error = np.abs(np.asarray(copied).astype(int) - np.asarray(exact).astype(int)).max()
            assert error <= (0 if kind == "PNG" else 8)
    data = load(f"folder:{target}")
    assert (len(data.train), len(data.test), data.classes) == (5, 5, ("cat", "dog"))


def test_what_is_there_is_kept_and_what_is_cut_short_is_made_again(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "small"
    resize.resize(source, target, size=60, workers=0)
    before = files(target)
    cut, gone = target / "train/cat/wide.JPEG", target / "val/dog/see-through.png"
    cut.write_bytes(cut.read_bytes()[:-100])
    gone.unlink()
    left_behind = target / "train" / "cat" / f".x.jpg.{'0' * 32}"
    left_behind.write_bytes(b"half an image")
    done = resize.resize(source, target, size=60, workers=0)
    assert (done.made, done.kept) == (2, 8)
    after = files(target)
    assert {name: content for name, (_, content) in after.items()} == {n: content for n, (_, content) in before.items()}
    assert sum(after[name][0] != before[name][0] for name in before) == 2


def images_in(folder: Path) -> list[Path]:
    """Those that a data set would have; files may come and go meanwhile."""
    walk = ((Path(place), names) for place, _, names in os.walk(folder) if "/." not in place)
    return [place / name for place, names in walk for name in names if name.endswith(".jpg")]


def test_a_kill_leaves_whole_copies_only_and_the_rest_is_made_later(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "small"
    for part in ("train", "val"):
        for number in range(40):
            save(source / part / "a" / f"{number}.jpg", picture(500, 400 + number))
    context = get_context("forkserver")
    context.set_forkserver_preload(["gradreg.data.resize"])
    process = context.Process(target=resize.resize, args=(source, target), kwargs={"size": 200, "workers": 0})
    process.start()
    while len(images_in(target)) < 5:
        assert process.is_alive()
        time.sleep(0.005)
    process.kill()
    process.join()
    copied = images_in(target)
    assert 5 <= len(copied) < 80
    assert all(complete(path) for path in copied)
    done = resize.resize(source, target, size=200, workers=0)
    assert (done.made, done.kept) == (80 - len(copied), len(copied))
    assert not [path for path in target.rglob(".*") if path.is_file()]


@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_files_are_named_and_the_others_copied(source: Path, tmp_path: Path, workers: int) -> None:
    (source / "train/cat/wide.JPEG").write_bytes(b"no image")
    with pytest.raises(DataError) as caught:
        resize.resize(source, tmp_path / "small", size=60, workers=workers)
    assert "train/cat/wide.JPEG cannot be decoded as an image" in str(caught.value)
    assert str(caught.value).endswith(": replace or remove it.")
    assert "Traceback" not in str(caught.value)
    assert len(files(tmp_path / "small")) == 10
    (source / "val/cat/wide.JPEG").write_bytes(b"no image")
    (tmp_path / "small/val/cat/wide.JPEG").unlink()
    with pytest.raises(DataError, match=r"wide.JPEG .* The same holds for 1 other files\.$"):
        resize.resize(source, tmp_path / "small", size=60, workers=workers)


def test_both_val_and_test_are_copied(source: Path, tmp_path: Path) -> None:
    save(source / "test" / "cat" / "x.png", picture(90, 90))
    save(source / "test" / "dog" / "x.png", picture(90, 90))
    assert resize.resize(source, tmp_path / "small", size=60, workers=0).made == 12


def test_senseless_requests_are_refused(source: Path, tmp_path: Path) -> None:
    def refused(message: str, kind: type[GradregError], target: Path, **options: int) -> None:
        with pytest.raises(kind, match=message) as caught:
            resize.resize(source, target, **({"size": 60, "workers": 0} | options))  # type: ignore[arg-type]
        assert str(caught.value).endswith(".")

    before = files(source)
    refused("must not contain each other", DataError, source)
    refused("must not contain each other", DataError, source / "small")
    refused("must not contain each other", DataError, source / ".." / "source" / "small")
    refused("must not contain each other", DataError, tmp_path)
    refused("size must be at least 1 .*; got 0", ConfigError, tmp_path / "small", size=0)
    refused("quality must be from 1 to 95 .*; got 96", ConfigError, tmp_path / "small", quality=96)
    refused("workers must be at least 0 .*; got -1", ConfigError, tmp_path / "small", workers=-1)
    assert not (tmp_path / "small").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    refused("is not empty and holds no copies made by gradreg", DataError, tmp_path / "other")
    refused("cannot be used|is not empty", DataError, tmp_path / "other" / "mine.txt")
    resize.resize(source, tmp_path / "small", size=60, workers=0)
    refused("holds copies made with", DataError, tmp_path / "small", size=61)
    assert json.loads((tmp_path / "small" / "resized.json").read_text()) == {"size": 60, "quality": 90}
    save(source / "train" / "dog" / "grey.bmp.png", picture(9, 9))
    refused("would have the same copy: rename one of them", DataError, tmp_path / "third")
    (source / "train" / "dog" / "grey.bmp.png").unlink()
    assert files(source) == before


def test_a_disk_that_is_full_is_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PIL.Image.Image, "save", full)
    with pytest.raises(DataError, match=r"could not be written .*No space left .* other files"):
        resize.resize(source, tmp_path / "small", size=60, workers=0)


def test_a_terminal_sees_a_bar_and_others_nothing(source: Path, tmp_path: Path) -> None:
    terminal, pipe = (Console(file=io.StringIO(), force_terminal=answer, width=100) for answer in (True, False))
    resize.resize(source, tmp_path / "one", size=60, workers=0, console=terminal)
    resize.resize(source, tmp_path / "two", size=60, workers=0, console=pipe)
    assert "10/10" in terminal.file.getvalue()  # type: ignore[attr-defined]
    assert pipe.file.getvalue() == ""  # type: ignore[attr-defined]


def test_a_table_of_labels_is_told_from_class_folders(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "labels.csv").write_text("file_name,label\n0.png,1\n")
    with pytest.raises(DataError, match=r"flat must have its images in class folders .*; got a table, labels\.csv"):
        resize.resize(tmp_path / "flat", tmp_path / "small", size=60)
