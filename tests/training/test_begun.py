"""A run is resumed with the data, layers and functions that it was begun with, or refused in one sentence."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from tiny import digits, network, same_weights, stopped_after, tiny_fit
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gradreg.config import tables
from gradreg.errors import ConfigError
from gradreg.runs.checkpoints import State, read, write
from gradreg.runs.settings import Config
from gradreg.training import train
from gradreg.training.begun import code_of, data_of
from gradreg.training.measure import Measure
from gradreg.training.sources import Loaders, Source

PART = digits(60)
X, Y = PART.floats(), PART.labels
HELD = [(X[40:], Y[40:])]
SHORT: dict[str, Any] = {"epochs": 2, "probe": None, "objective": "undefended", "ema": None}


def squared(logits: Tensor, y: Tensor) -> Tensor:
    return (logits - nn.functional.one_hot(y, 10)).square().sum(1)


def deeper() -> nn.Module:
    layers = list(network())  # type: ignore[call-overload]
    return nn.Sequential(*layers, nn.Tanh())


OTHER: dict[str, tuple[dict[str, Any], str]] = {
    "images": ({"data": (1 - X, Y)}, "other data, other held-out data;"),
    "labels": ({"data": (X, Y.flip(0))}, "other data, other held-out data;"),
    "fewer": ({"data": (X[:55], Y[:55])}, "other data, other held-out data;"),
    "held-out images": ({"held_out": 25}, "other data, other held-out data;"),
    "criterion": ({"criterion": squared}, "other criterion;"),
    "output": ({"output": torch.neg}, "other output;"),
    "score": ({"score": lambda logits, y: y * 0.0}, "other score;"),
    "layers": ({"model": deeper()}, "other layers;"),
    "augment": ({"augment": ("flip",)}, "other augment, other data, other held-out data;"),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("begun") / "run"
    stopped_after(3, run, data=(X, Y), **SHORT)
    return run


@pytest.mark.parametrize("kind", OTHER)
def test_what_no_recipe_holds_is_compared(kind: str, stopped: Path) -> None:
    changes, said = OTHER[kind]
    before = {path.name: path.read_bytes() for path in stopped.iterdir()}
    model = changes.get("model") or network()
    weights = [weight.clone() for weight in model.parameters()]
    with pytest.raises(ConfigError, match=f"^{stopped} was begun with {said} continue it with the same ones"):
        tiny_fit(stopped, resume=True, **({"data": (X, Y), **SHORT, "model": model} | changes))
    assert {path.name: path.read_bytes() for path in stopped.iterdir()} == before
    assert all(map(torch.equal, weights, model.parameters()))


def test_the_same_again_resumes_to_the_bit(stopped: Path, tmp_path: Path) -> None:
    tiny_fit(tmp_path / "whole", data=(X, Y), **SHORT)
    tiny_fit(stopped, data=(X, Y), resume=True, **SHORT)
    assert same_weights(tmp_path / "whole", stopped)
    with pytest.raises(ConfigError, match="was begun with other data"):  # also when nothing is left to do
        tiny_fit(stopped, data=(1 - X, Y), resume=True, **SHORT)


def test_a_checkpoint_of_before_says_nothing_and_resumes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped_after(3, run, data=(X, Y), **SHORT)
    for path in run.glob("state-*.safetensors"):
        state = read(path)
        assert set(state.numbers["begun"]) >= {"data", "held-out data", "layers", "criterion"}
        write(path, State(state.tensors, {name: value for name, value in state.numbers.items() if name != "begun"}))
    assert len(tiny_fit(run, data=(1 - X, Y), resume=True, **SHORT).metrics) == 2


class Photos(Dataset[dict[str, Any]]):
    """Draws of three generators; labels and what else there is are fixed."""

    def __init__(self, shift: int = 0, *, chance: bool = True) -> None:
        self.shift, self.chance, self.asked = shift, chance, 0

    def __len__(self) -> int:
        return 60

    def __getitem__(self, position: int) -> dict[str, Any]:
        self.asked += 1
        noise = random.random() + np.random.rand() + float(torch.rand(())) if self.chance else 0.0
        picture = PIL.Image.new("L", (8, 8), int(50 * noise) + self.shift * (not self.chance))
        return {"image": picture, "label": (position + self.shift) % 3, "id": f"{position}", "extra": None}


def of(train: Any, held: Any = HELD, *, alone: bool = True) -> tuple[str, str]:
    found = data_of(Source([Loaders(0, train, held)], 0, torch.device("cpu")), alone=alone)
    return found["data"], found["held-out data"]


LOADERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "list": (lambda: [(X, Y)], lambda: [(X, Y.flip(0))]),
    "mappings": (lambda: [{"image": X, "label": Y}], lambda: [{"image": 1 - X, "label": Y}]),
    "arrays": (lambda: [(X.numpy(), Y.tolist())], lambda: [(1 - X.numpy(), Y.tolist())]),
    "tensors": (
        lambda: DataLoader(TensorDataset(X, Y), 16, shuffle=True),
        lambda: DataLoader(TensorDataset(1 - X, Y), 16, shuffle=True),
    ),
    "labels of a random data set": (lambda: DataLoader(Photos(), 20), lambda: DataLoader(Photos(1), 20)),
    "pictures": (lambda: DataLoader(Photos(chance=False), 20), lambda: DataLoader(Photos(3, chance=False), 20)),
    "length": (lambda: DataLoader(Photos(), 20), lambda: DataLoader(Photos(), 16)),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_loaders_are_told_apart_by_a_few_images(kind: str) -> None:
    one, other = LOADERS[kind]
    first = of(one())
    random.random(), np.random.rand(), torch.rand(3)  # wherever the generators stand
    assert of(one()) == first
    assert of(other())[0] != first[0]
    assert of([(X, Y)], one())[1] != of([(X, Y)], other())[1]


def test_generators_are_left_as_they_were_and_few_images_are_read() -> None:
    photos = Photos()
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
    of(DataLoader(photos, 20))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states  # type: ignore[index]
    assert photos.asked == 16


def test_of_several_processes_each_has_its_own_part() -> None:
    assert of([(X, Y)], alone=False) == of([(1 - X, Y)], alone=False)


def test_layers_and_functions() -> None:
    def key(model: nn.Module | None = None, **functions: Any) -> Any:
        return code_of(model or network(), Measure(**functions), ())

    assert key() == key(network(seed=1))
    weighted = [nn.CrossEntropyLoss(torch.full((10,), w), reduction="none") for w in (1.0, 1.0, 2.0)]
    keys = [key(criterion=each)["criterion"] for each in weighted]
    assert keys[0] == keys[1] != keys[2]
    assert key(output=lambda out: out["a"])["output"] != key(output=lambda out: out["b"])["output"]


def folder(root: Path) -> Path:
    for part, count in (("train", 16), ("val", 2)):
        for name in ("a", "b"):
            (root / part / name).mkdir(parents=True)
            for i in range(count):
                PIL.Image.new("RGB", (16, 16), (40 * (name == "a"), 8 * i, 0)).save(root / part / name / f"{i}.png")
    return root


def test_the_files_of_a_recipe_are_compared(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    table = {"data": f"folder:{root}", "model": {"name": "small"}, "objective": "undefended", "epochs": 1}
    table |= {"batch_size": 8, "held_out": 8, "workers": 0, "probe": None, "size": 16, "augment": []}
    config = tables.build(Config, table)
    train(config, tmp_path / "run")
    train(config, tmp_path / "run", resume=True)
    PIL.Image.new("RGB", (16, 16)).save(root / "train/a/more.png")
    with pytest.raises(ConfigError, match="run was begun with other data, other held-out data; continue it"):
        train(config, tmp_path / "run", resume=True)
    (root / "train/a/more.png").unlink()
    train(config, tmp_path / "run", resume=True)
    for path in (root / "train").rglob("*.png"):
        PIL.Image.new("RGB", (16, 16), "red").save(path)
    with pytest.raises(ConfigError, match="run was begun with other data"):
        train(config, tmp_path / "run", resume=True)
