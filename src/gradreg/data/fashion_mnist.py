"""Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): 60,000 + 10,000 grey 28x28 images of clothes, as idx files."""

from __future__ import annotations

from pathlib import Path

from gradreg.data.files import download
from gradreg.data.idx import read_labels, read_pixels
from gradreg.data.images import Images

_ADDRESS = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_MD5 = {
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
RADII = {"linf": (0.05, 0.1), "l2": (0.75, 1.5)}


def load(root: Path) -> tuple[Images, Images]:
    """The training and test parts, from `root` or a folder in it; missing files are downloaded."""
    places = (root, root / "fashion-mnist", root / "FashionMNIST" / "raw")
    folder = next((place for place in places if any(_find(place, name) for name in _MD5)), places[1])
    files = {name: _find(folder, name) or _fetch(folder, name) for name in _MD5}
    return _part(files, "train"), _part(files, "t10k")


def _part(files: dict[str, Path], part: str) -> Images:
    images, labels = files[f"{part}-images-idx3-ubyte"], files[f"{part}-labels-idx1-ubyte"]
    return Images(read_pixels(images), read_labels(labels), CLASSES, source=f"{images} with {labels.name}")


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def _fetch(folder: Path, name: str) -> Path:
    path = folder / f"{name}.gz"
    wanted = f"Fashion-MNIST needs {', '.join(f'{each}.gz' for each in _MD5)} (or unpacked) in {folder}"
    download(f"{_ADDRESS}{name}.gz", path, _MD5[name], wanted)
    return path
