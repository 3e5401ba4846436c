"""CIFAR-10.1: its two files as numpy writes them, beside CIFAR-10's training part."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from gradreg.data import Images, cifar10, cifar10_1, load
from gradreg.errors import DataError

PIXELS, LABELS = "cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cifar10_1, "_SHAPE", (6, 32, 32, 3))
    train = Images(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), cifar10.CLASSES)
    monkeypatch.setattr(cifar10, "load", lambda root: (train, train))
    dice = np.random.default_rng(0)
    np.save(tmp_path / PIXELS, dice.integers(0, 256, (6, 32, 32, 3)).astype(np.uint8))
    np.save(tmp_path / LABELS, np.array([0, 9, 3, 3, 1, 2], dtype=np.int32))
    return tmp_path


def test_images_and_labels_are_those_of_the_files(root: Path) -> None:
    data = load("cifar10.1", root)
    assert isinstance(data.test, Images)
    assert (len(data.train), data.test.labels.tolist()) == (2, [0, 9, 3, 3, 1, 2])
    stored = np.load(root / PIXELS)
    assert data.test.pixels[4, 2, 10, 20] == stored[4, 10, 20, 2]
    assert data.classes == cifar10.CLASSES


def header(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY", header((6, 32, 32, 3)), header((10**6, 10**6, 10**6)), header((6, 32, 32, 3), "|O"), b"x" * 99],
)
def test_a_damaged_file_is_named(root: Path, content: bytes) -> None:
    (root / PIXELS).write_bytes(content)
    with pytest.raises(DataError, match=f"{PIXELS} is truncated or damaged"):
        load("cifar10.1", root)


def test_labels_outside_of_the_classes_are_refused(root: Path) -> None:
    np.save(root / LABELS, np.full(6, 10))
    with pytest.raises(DataError, match="labels must lie between 0 and 9"):
        load("cifar10.1", root)


def test_without_its_files_it_says_which(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"CIFAR-10.1 needs {PIXELS} and {LABELS} in"):
        load("cifar10.1", tmp_path)
