"""Samples of data sets: idx, CIFAR in its layouts, npy, the digits of mnist5k, image folders."""

import gzip
import json
import pickle
import shutil
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_values import Maker
from PIL import Image

from gradreg.data import cifar10, cifar10_1, fashion_mnist, mnist5k
from gradreg.data import folder as folders
from gradreg.data.resize import Copies, _prepare

ROWS = 4
cifar10._ROWS = ROWS  # files of four images instead of ten thousand
cifar10_1._SHAPE = (ROWS, 32, 32, 3)


def _bytes(count: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8).tobytes()


def make_idx(packed: bool) -> Maker:
    def make(folder: Path, seed: int) -> None:
        for name in fashion_mnist._MD5:
            sides = (28, 28) if "images" in name else ()
            values = _bytes(ROWS * 784, seed) if sides else bytes([1, 2, 3, seed])
            data = struct.pack(f">BBBB{1 + len(sides)}I", 0, 0, 8, 1 + len(sides), ROWS, *sides) + values
            (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data, 1) if packed else data)

    return make


def hold_images(value: Any, folder: Path) -> None:
    for images in (value.train, value.test):
        assert images.pixels.dtype == torch.uint8
        assert len(images.pixels) == len(images.labels) > 0
        assert bool(((images.labels >= 0) & (images.labels < 10)).all())


def hold_idx(value: Any, folder: Path) -> None:
    hold_images(value, folder)
    for part_, name in ((value.train, "train"), (value.test, "t10k")):
        path = next(folder.glob(f"{name}-images*"))
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert part_.pixels.numpy().tobytes() == data[16:]


def make_cifar(layout: Any, packed: bool) -> Maker:
    def make(folder: Path, seed: int) -> None:
        place = folder / layout.folder
        place.mkdir()
        for row, name in enumerate(layout.files()):
            pixels, labels = _bytes(ROWS * 3072, seed + row), [(seed + row + i) % 10 for i in range(ROWS)]
            rows = [pixels[i * 3072 : (i + 1) * 3072] for i in range(ROWS)]
            binary = b"".join(bytes([label]) + each for label, each in zip(labels, rows, strict=True))
            array = np.frombuffer(pixels, np.uint8).reshape(ROWS, 3072)
            pickled = pickle.dumps({"labels": labels, "data": array, "batch_label": "training"}, 4)
            (place / name).write_bytes(binary if layout.suffix else pickled)
        if packed:
            with tarfile.open(folder / layout.archive, "w:gz", compresslevel=1) as tar:
                tar.add(place, arcname=layout.folder)
            shutil.rmtree(place)

    return make


def hold_cifar(value: Any, folder: Path) -> None:
    hold_images(value, folder)
    for row, name in enumerate(cifar10._BINARY.files()):
        if (path := folder / cifar10._BINARY.folder / name).is_file():
            pixels = value.test.pixels if row == 5 else value.train.pixels[row * ROWS : (row + 1) * ROWS]
            stored = np.frombuffer(path.read_bytes(), np.uint8).reshape(ROWS, 3073)[:, 1:]
            assert pixels.numpy().tobytes() == stored.tobytes()


def make_npy(folder: Path, seed: int) -> None:
    make_cifar(cifar10._BINARY, False)(folder, seed)
    np.save(
        folder / "cifar10.1_v6_data.npy", np.frombuffer(_bytes(ROWS * 3072, seed), np.uint8).reshape(ROWS, 32, 32, 3)
    )
    np.save(folder / "cifar10.1_v6_labels.npy", np.arange(ROWS))


def make_digits(folder: Path, seed: int) -> None:
    for file in mnist5k.HOME.glob("*.gz"):
        (folder / file.name).write_bytes(b"something else" if seed else file.read_bytes())


def read_digits(folder: Path) -> Any:
    train, test = mnist5k.read(folder)
    return train.pixels, train.labels, test.pixels, test.labels


_KINDS = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP", "tif": "TIFF", "ppm": "PPM"}


def make_images(folder: Path, seed: int) -> None:
    for group in ("train", "val"):
        for label, name in enumerate(("cat", "dog")):
            (folder / group / name).mkdir(parents=True)
            for row, (suffix, kind) in enumerate(_KINDS.items()):
                pixels = np.frombuffer(_bytes(12 * 10 * 3, seed + row + label), np.uint8).reshape(12, 10, 3)
                Image.fromarray(pixels).save(folder / group / name / f"{row}.{suffix}", kind)


def read_images(folder: Path) -> Any:
    train, test = folders.load(folder)
    return [replace(each, size=8).floats() for each in (train, test)], train.classes


def hold_pixels(value: Any, folder: Path) -> None:
    for pixels in value[0]:
        assert pixels.shape[1:] == (3, 8, 8)
        assert bool(((pixels >= 0) & (pixels <= 1)).all())


def make_note(folder: Path, seed: int) -> None:
    (folder / "source").mkdir()
    (folder / "copies").mkdir()
    (folder / "copies" / "resized.json").write_text(json.dumps({"size": 32 + seed, "quality": 90}))


def read_note(folder: Path) -> str:
    _prepare(Copies(folder / "source", folder / "copies", 32))
    return "same settings"


def make_npz(folder: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    np.savez(
        folder / "mine.npz", images=draw.integers(256, size=(10, 4, 4, 3), dtype=np.uint8), labels=np.arange(10) % 3
    )


def hold_npz(value: Any, folder: Path) -> None:
    """Every image is one of the file's, with its label."""
    with np.load(folder / "mine.npz") as arrays:
        pairs = {
            (image.transpose(2, 0, 1).tobytes(), int(label)) for image, label in zip(*arrays.values(), strict=True)
        }
    for part in (value.train, value.test):
        assert {(i.numpy().tobytes(), int(y)) for i, y in zip(part.pixels, part.labels, strict=True)} <= pairs


def make_table(folder: Path, seed: int) -> None:
    for number in range(5):
        (folder / f"{number}.png").write_bytes(b"only listed")
    (folder / "labels.csv").write_text("file_name,label\n" + "".join(f"{i}.png,{(i + seed) % 2}\n" for i in range(5)))
