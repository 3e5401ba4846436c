from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gradreg.data import Images, cifar10, files, load, pickles
from gradreg.errors import DataError

ROWS = 4
Write = Callable[[NDArray[np.uint8], list[int]], bytes]


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "_ROWS", ROWS)


def binary(pixels: NDArray[np.uint8], labels: list[int]) -> bytes:
    return b"".join(bytes([label]) + row.tobytes() for row, label in zip(pixels, labels, strict=True))


def python2(pixels: NDArray[np.uint8], labels: list[int]) -> bytes:
    """Opcode by opcode what Python 2 and its numpy wrote: protocol 2, strings as bytes."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    size = b"".join(b"M" + struct.pack("<H", n) for n in pixels.shape)
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + size + b"\x86" + dtype + b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    items = text(b"batch_label") + text(b"training batch 1 of 5") + text(b"labels") + numbers + text(b"data") + array
    return b"\x80\x02}(" + items + b"u."


def python3(pixels: NDArray[np.uint8], labels: list[int]) -> bytes:
    return pickle.dumps({"data": pixels, "labels": labels}, protocol=4)


def sample(i: int) -> tuple[NDArray[np.uint8], list[int]]:
    pixels = (np.arange(ROWS * 3072) * (2 * i + 3) % 251).astype(np.uint8).reshape(ROWS, 3072)
    return pixels, [(i + row) % 10 for row in range(ROWS)]


def make(root: Path, layout: cifar10._Layout, write: Write) -> Path:
    folder = root / layout.folder
    folder.mkdir()
    for i, name in enumerate(layout.files()):
        (folder / name).write_bytes(write(*sample(i)))
    return folder


def pack(folder: Path, layout: cifar10._Layout) -> Path:
    """Only the archive stays."""
    archive = folder.parent / layout.archive
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=layout.folder)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    return archive


LAYOUTS = [(cifar10._BINARY, binary), (cifar10._PYTHON, python2), (cifar10._PYTHON, python3)]


@pytest.mark.parametrize(("layout", "write"), LAYOUTS)
@pytest.mark.parametrize("form", ["above", "itself", "archive"])
def test_round_trip(tmp_path: Path, layout: cifar10._Layout, write: Write, form: str) -> None:
    folder = make(tmp_path, layout, write)
    if form == "archive":
        pack(folder, layout)
    data = load("cifar10", folder if form == "itself" else tmp_path)
    assert isinstance(data.train, Images)
    assert isinstance(data.test, Images)
    expected = np.concatenate([sample(i)[0] for i in range(5)]).reshape(-1, 3, 32, 32)
    assert np.array_equal(data.train.pixels.numpy(), expected)
    assert data.train.labels.tolist() == [label for i in range(5) for label in sample(i)[1]]
    assert np.array_equal(data.test.pixels.numpy(), sample(5)[0].reshape(-1, 3, 32, 32))
    assert data.classes[3] == "cat"


def test_what_is_missing_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    content = pack(make(tmp_path / "far", *LAYOUTS[0]), cifar10._BINARY).read_bytes()
    asked: list[str] = []

    def answered(url: str) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(content)

    monkeypatch.setattr(files, "_opened", answered)
    monkeypatch.setattr(cifar10, "_BINARY_MD5", hashlib.md5(content).hexdigest())
    for _ in range(2):
        assert load("cifar10", tmp_path).test.labels.tolist() == sample(5)[1]
    assert asked == ["https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"]


def refused(root: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load("cifar10", root)
    assert "\n" not in str(caught.value)


def test_a_truncated_binary_file_is_named(tmp_path: Path) -> None:
    file = make(tmp_path, *LAYOUTS[0]) / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-3073])
    refused(tmp_path, r"data_batch_3\.bin is truncated or damaged \(it has 9219 bytes, .* make 12292\)")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (make(tmp_path, *LAYOUTS[0]) / "data_batch_4.bin").unlink()
    refused(tmp_path, r"cifar-10-batches-bin lacks data_batch_4\.bin")


def test_a_label_out_of_range_is_named_with_its_file(tmp_path: Path) -> None:
    (make(tmp_path, *LAYOUTS[0]) / "data_batch_2.bin").write_bytes(binary(sample(1)[0], [1, 10, 2, 3]))
    refused(tmp_path, r"data_batch_2\.bin: labels must lie between 0 and 9 for 10 classes; got 10 for image 1")


@pytest.mark.parametrize("share", [0, 1, 2])
def test_a_truncated_archive_is_named(tmp_path: Path, share: int) -> None:
    archive = pack(make(tmp_path, *LAYOUTS[0]), cifar10._BINARY)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size * share // 3])
    refused(tmp_path, r"cifar-10-binary\.tar\.gz is truncated or damaged")


def test_an_archive_without_all_files_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path, *LAYOUTS[0])
    (folder / "test_batch.bin").unlink()
    pack(folder, cifar10._BINARY)
    refused(tmp_path, r"cifar-10-binary\.tar\.gz .*5 of 6 data files")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (python2(*sample(0))[:-1], "Ran out of input|truncated"),
        (python2(*sample(0))[:5000], "truncated"),
        (b"", "pickle exhausted before seeing STOP"),
        (b"these are not the bytes of a pickle", "damaged"),
        (pickle.dumps([1, 2]), "no dictionary"),
        (pickle.dumps({"labels": [1]}), "no array 'data'"),
        (python3(sample(0)[0], [1, 2, 3]), "one label per image; got 3 for 4 images"),
        (python3(sample(0)[0], [1, 2, 3, 11]), "labels must lie between 0 and 9 for 10 classes; got 11 for image 3"),
        (python3(sample(0)[0], ["a", "b", "c", "d"]), "damaged"),  # type: ignore[list-item]
        (python3(sample(0)[0][:2], [1, 2]), "cannot reshape"),
        (pickle.dumps({"data": np.zeros((4, 3072)), "labels": [1] * 4}, 4), "not one of bytes"),
        (pickle.dumps({"data": np.array([{}, []], dtype=object), "labels": []}, 4), "not one of bytes"),
    ],
)
def test_a_damaged_pickle_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (make(tmp_path, *LAYOUTS[1]) / "data_batch_1").write_bytes(content)
    refused(tmp_path, f"data_batch_1.*({message})")


class Hostile:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("nested", [False, True])
def test_a_hostile_pickle_runs_nothing(tmp_path: Path, protocol: int, nested: bool) -> None:
    mark = tmp_path / "it-ran"
    for bomb in (
        Hostile(os.system, f"touch {mark}"),
        Hostile(eval, f"open({str(mark)!r}, 'w')"),
        Hostile(open, str(mark), "w"),
        Hostile(np.save, str(mark), [0]),
    ):
        content = pickle.dumps({"data": [bomb], "labels": []} if nested else bomb, protocol)
        with pytest.raises(DataError, match=r"some/file names .*refused and nothing in it was run"):
            pickles.load(content, "some/file")
    assert not list(tmp_path.iterdir())


def test_a_pickle_cannot_change_what_it_names() -> None:
    named = b"\x80\x02}(U\x01acnumpy.core.multiarray\n_reconstruct\n"
    with pytest.raises(DataError, match="gives a state to what has none"):
        pickles.load(named + b"}U\x05extraK\x05sbu.", "spoilt")


@pytest.mark.parametrize("levels", [40, 200])
def test_values_inside_each_other_take_no_time(levels: int) -> None:
    """Python's own unpickler would hash the key, and numpy read the list, for longer than the universe is old."""
    nested: Any = 1
    listed: Any = 1
    for _ in range(levels):
        nested, listed = (nested, nested), [listed, listed]
    start = time.perf_counter()
    with pytest.raises(DataError, match="a key in it is not a word"):
        pickles.load(b"\x80\x02}" + pickle.dumps(nested, 2)[2:-1] + b"K\x01s.", "keys")
    with pytest.raises(DataError, match="a label in it is not a whole number"):
        cifar10._parse_python(python3(sample(0)[0], [listed] * ROWS), "lists")
    assert time.perf_counter() - start < 5
