from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gradreg.data import Images, load
from gradreg.errors import DataError

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def sample(n: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    pixels = (np.arange(n * 28 * 28) * 7 % 256).astype(np.uint8).reshape(n, 28, 28)
    return pixels, (np.arange(n) * 3 % 10).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny set in the official layout: gzip files in DIR/fashion-mnist."""
    place = tmp_path / "fashion-mnist"
    place.mkdir()
    for part, n in (("train", 6), ("t10k", 4)):
        pixels, labels = sample(n)
        (place / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels)))
        (place / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return place


def train_of(folder: Path) -> Images:
    part = load("fashion-mnist", folder).train
    assert isinstance(part, Images)
    return part


@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize("above", [False, True])
def test_round_trip(folder: Path, unpacked: bool, above: bool) -> None:
    if unpacked:
        for file in folder.glob("*.gz"):
            file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
            file.unlink()
    data = load("fashion-mnist", folder.parent if above else folder)
    pixels, labels = sample(6)
    assert isinstance(data.train, Images)
    assert np.array_equal(data.train.pixels.squeeze(1).numpy(), pixels)
    assert data.train.labels.tolist() == labels.tolist()
    assert len(data.test) == 4
    assert data.classes[9] == "Ankle boot"


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-30])


@pytest.mark.parametrize("name", [IMAGES, LABELS])
def test_a_truncated_gzip_file_is_named(folder: Path, name: str) -> None:
    cut(folder / f"{name}.gz")
    with pytest.raises(DataError, match=rf"{name}\.gz is truncated or damaged"):
        load("fashion-mnist", folder)


def test_a_corrupt_gzip_file_is_named(folder: Path) -> None:
    file = folder / f"{IMAGES}.gz"
    damaged = bytearray(file.read_bytes())
    damaged[40:60] = bytes(20)
    file.write_bytes(bytes(damaged))
    with pytest.raises(DataError, match=rf"{IMAGES}\.gz is truncated or damaged"):
        load("fashion-mnist", folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, idx(sample(6)[0])[:-1], "announces 4704 values, 4703 follow"),
        (IMAGES, idx(sample(6)[0]) + b"x", "announces 4704 values, 4705 follow"),
        (IMAGES, idx(sample(6)[0])[:9], "header is incomplete"),
        (IMAGES, b"", "begins with nothing, not with the 00000803"),
        (IMAGES, idx(sample(6)[1]), "begins with 00000801, not with the 00000803"),
        (LABELS, b"\x00\x00\x0d\x01" + bytes(8), "begins with 00000d01, not with the 00000801"),
        (LABELS, idx(sample(5)[1]), "one label per image; got 5 for 6 images"),
        (
            LABELS,
            idx(np.array([0, 1, 2, 10, 4, 5], np.uint8)),
            "labels must lie between 0 and 9 for 10 classes; got 10 for image 3",
        ),
    ],
)
def test_wrong_content_is_named(folder: Path, name: str, content: bytes, message: str) -> None:
    (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=f"{name}.*{message}"):
        train_of(folder)
