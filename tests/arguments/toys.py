"""A model that counts its forwards, four images of it, and whatever else a valid call needs; small, to be fast."""

import atexit
import os
from base64 import b64decode
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import gradreg
from gradreg import AttackResult, Certificates, Evaluation, Regularity
from gradreg.attacks import EpsilonOracle
from gradreg.bounds import Curvature, curvature
from gradreg.data import DataSet, ImageFolder, Images
from gradreg.diagnosis import Flag
from gradreg.evaluation import evaluate
from gradreg.inspection import Inspection
from gradreg.objectives import Draws, Moment, Objective
from gradreg.report.page.png import data_uri
from gradreg.runs.settings import Config
from gradreg.training import JSONLLogger

_NUMBERS = count()
CLASSES, SHAPE, COUNT = 4, (3, 4, 4), 4
NAMES = ("cat", "dog", "eel", "fox")


class Counting(nn.Module):
    """A linear model. `calls` says how often any model of this kind was asked since it was last set to 0."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(48, CLASSES)
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(CLASSES, 48, generator=torch.Generator().manual_seed(3)) / 4)
            self.layer.bias.copy_(self.layer.weight.sum(1) / -2)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += 1
        logits: Tensor = self.layer(x.flatten(1))
        return logits


def images(number: int = COUNT, seed: int = 0) -> Tensor:
    """Well inside the box."""
    return 0.3 + 0.4 * torch.rand(number, *SHAPE, generator=torch.Generator().manual_seed(seed))


def labels(number: int = COUNT, seed: int = 0) -> Tensor:
    """As the model itself answers, so that all images are classified correctly."""
    with torch.no_grad():
        found: Tensor = Counting()(images(number, seed)).argmax(1)
    return found


def asked(**more: Any) -> Callable[[], dict[str, Any]]:
    """The arguments that nearly every function takes, and more of them."""
    return lambda: {"model": Counting(), "x": images(), "y": labels()} | more


def part(number: int, seed: int) -> Images:
    pixels = (images(number, seed) * 255).byte()
    with torch.no_grad():
        return Images(pixels, Counting()(pixels / 255).argmax(1), NAMES, source=f"toy {seed}")


def data_set() -> DataSet:
    return DataSet("toy", part(60, 1), part(20, 2))


@cache
def attacked() -> AttackResult:
    return gradreg.attack(Counting(), images(), labels(), attacks=["deepfool"])


@cache
def certified() -> Certificates:
    return gradreg.certify(Counting(), images(), sigma=0.1, n=100)


@cache
def regularity() -> Regularity:
    data = images(), labels()
    return gradreg.estimate_regularity(Counting(), data, method="local", eps=[0.1, 0.3], steps=1, rivals=1)


@cache
def evaluated() -> Evaluation:
    return evaluate(Counting(), data_set(), **QUICK)


BRIEF = {"epochs": 1, "batch_size": 12}
QUICK: dict[str, Any] = {
    "threat": "l2",
    "images": 4,
    "attacks": "deepfool",
    "smoothing": (0.1,),
    "samples": 100,
    "radii": (0.02, 0.05),
    "diagnosis": False,
}


def config(**changes: Any) -> Config:
    return Config(**{"data": "mnist5k", "model": {"name": "small"}, "epochs": 1, **changes})


def classifier() -> gradreg.Classifier:
    return gradreg.Classifier(Counting())


def unused() -> Path:
    """A folder that nobody has written to."""
    return files()["pool"].with_name(f"unused-{next(_NUMBERS)}")


def oracle() -> EpsilonOracle:
    return EpsilonOracle("l2", attacks=["deepfool"])


def pool() -> gradreg.Pool:
    found = gradreg.Pool(COUNT)
    found.update(attacked())
    return found


@cache
def curved() -> Curvature:
    return curvature(Counting(), images(), labels(), steps=3)


@cache
def inspected() -> Inspection:
    return gradreg.inspect_image(Counting(), images()[0], attacks="deepfool", samples=100)


def flags() -> list[Flag]:
    return [Flag("train-mode", "info", {"value": 0}, "No layer is in train mode.")]


@cache
def files() -> dict[str, Path]:
    """One file of each kind that is read."""
    folder = Path(mkdtemp())
    atexit.register(rmtree, folder, ignore_errors=True)
    found = {name: folder / f"{name}.safetensors" for name in ("certificates", "pool", "regularity")}
    certified().save(found["certificates"])
    pool().save(found["pool"])
    regularity().save(found["regularity"])
    evaluate(Counting(), data_set(), folder=folder / "evaluation", **QUICK)
    with torch.random.fork_rng():
        save_file(gradreg.build("small", classes=10).state_dict(), folder / "weights.safetensors")
    return found | {"evaluation": folder / "evaluation", "weights": folder / "weights.safetensors"}


@cache
def folder() -> ImageFolder:
    """Two small files."""
    paths = []
    for name, image in zip("ab", images(2), strict=True):
        path = files()["pool"].with_name(f"{name}.png")
        path.write_bytes(b64decode(data_uri(image).partition(",")[2]))
        paths.append(str(path))
    return ImageFolder(tuple(paths), torch.tensor([0, 1]), ("a", "b"), "toy folder", size=4)


def moment() -> Moment:
    """The first step of a run."""
    return Moment(0, 0.0, Draws((0,), COUNT, slice(COUNT)))


def objective(method: str) -> Objective:
    """The objective whose method that is."""
    name = method.split(".")[1]
    options = {"eps": 0.1} if name == "Gradient" else {}
    found: Objective = getattr(gradreg.objectives, name)(**options)
    return found


def logger() -> JSONLLogger:
    """One that has begun."""
    _LOGGER.begin({}, 0)
    return _LOGGER


_LOGGER = JSONLLogger(os.devnull)
atexit.register(_LOGGER.end, None)
