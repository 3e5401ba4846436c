"""Samples of what training writes and reads: runs, checkpoints, weights, recipes, shipped networks."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from fuzz_values import Maker, plain
from safetensors.torch import load_file
from torch import nn

from gradreg import storage
from gradreg.config import tables, toml
from gradreg.models import build
from gradreg.processes import joined
from gradreg.runs import files, networks, recipes
from gradreg.runs import load as load_run
from gradreg.runs.directory import MACHINE, RunDirectory
from gradreg.runs.opening import with_training
from gradreg.runs.settings import Config, Settings
from gradreg.runs.subject import Subject
from gradreg.training.callbacks import Callbacks
from gradreg.training.listening import Loggers
from gradreg.training.loop import Trainer
from gradreg.training.reporting import Reporter
from gradreg.training.sources import Loaders, Source

OLD = Path(__file__).parents[1] / "files" / "before-floors"

MODEL = {"name": "compact", "width": 1, "channels": 1, "classes": 10}


def make_run(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    net, run = build(**MODEL), RunDirectory(folder)  # type: ignore[arg-type]
    recipe = {
        "data": "mnist5k",
        "epochs": 2,
        "seed": seed,
        "objective": {"name": "gradient", "lam": 0.1},
        "model": MODEL,
    }
    run.start(recipe)
    for epoch in (1, 2):
        row = {"epoch": epoch, "step": 3 * epoch, "lr": 0.1, "loss": 2.0 / epoch, "held_out": 20, "clean": 0.25 * epoch,
               "probed": 10, "probe": 0.1 * epoch, "best": epoch == 2, "rollbacks": 0, "images_per_second": 10.5,
               "hours": 0.01 * epoch, "commit": "0123abc", "machine": "two cores"}  # fmt: skip
        run.add_metrics(row)
        run.save_weights("last", {name: value + epoch for name, value in net.state_dict().items()}, row)
    run.save_weights("best", net.state_dict(), row)


def read_run(folder: Path) -> Any:
    run = RunDirectory(folder)
    networks = {which: load_run(folder, which) for which in ("best", "last")}
    recipe = run.config()
    config = tables.build(Config, recipe)
    subject = with_training(Subject("net", "run", "compact", 1), run, recipe)
    return networks, plain(tables.plain(config)), run.metrics(), subject


def hold_run(value: Any, folder: Path) -> None:
    networks, *_ = value
    for which, network in networks.items():
        state = network.state_dict()
        stored = load_file(folder / f"{which}.safetensors")
        assert state.keys() == stored.keys()
        for name, weight in state.items():
            assert torch.equal(weight, stored[name]), name
            assert bool(weight.isfinite().all()), name
    hold_metrics(value[2], folder)


def lesser_run(value: Any, original: Any, sample: Path) -> bool:
    """Weights and recipe are those of the sample; metrics are plain text, and where it computes may change."""
    recipes_ = [{key: item for key, item in each[1].items() if key not in MACHINE} for each in (value, original)]
    return plain(value[0]) == plain(original[0]) and recipes_[0] == recipes_[1]


def hold_metrics(rows: Any, folder: Path) -> None:
    if not (folder / "metrics.jsonl").exists():
        assert rows == [], "a copy of a run may be without them"
        return
    lines = (folder / "metrics.jsonl").read_text().split("\n")
    stored = [json.loads(line) for line in lines[: len(rows)]]
    assert rows == stored
    assert len(lines) - len(rows) <= 1, "only the last line may be left out"
    epochs = [row["epoch"] for row in rows]
    assert epochs == sorted(set(epochs))
    assert all(epoch >= 1 for epoch in epochs)
    assert all(0 <= row["clean"] <= 1 for row in rows if row.get("clean") is not None)


def copied(*names: str) -> Maker:
    """The files of before there were checksums."""

    def make(folder: Path, seed: int) -> None:
        for name in names:
            place = OLD / name
            shutil.copytree(place, folder, dirs_exist_ok=True) if place.is_dir() else shutil.copy(place, folder)

    return make


def trainer(folder: Path) -> Trainer:
    torch.manual_seed(0)
    settings = tables.build(Settings, {"epochs": 3, "ema": 0.9, "optimizer": {"name": "adamw"}})
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    batches = [(torch.rand(2, 1, 2, 2), torch.tensor([0, 1]))] * 3
    source = Source([Loaders(0, batches, batches)], 0, torch.device("cpu"))
    with joined("cpu") as processes:
        return Trainer(net, source, settings, processes, RunDirectory(folder), Reporter(None), Loggers(()), Callbacks())


def make_checkpoints(folder: Path, seed: int) -> None:
    RunDirectory(folder).start({"epochs": 3, "seed": seed})
    at = trainer(folder)
    for epoch in (0, 1):
        for _ in range(3):
            x, y = torch.rand(2, 1, 2, 2), torch.tensor([0, 1])
            at.learner.step(x, y, (0, 0, at.position.step), at.position.step, epoch, 1.0)
            at.position.step += 1
        at.position.epoch = epoch + 1
        at.position.readings.append({"held_out": 2, "clean": 0.5, "held_out_loss": 1.5, "commonest": 0.5})
        at.run.generations.save(at._state())


def read_checkpoints(folder: Path) -> Any:
    at = trainer(folder)
    errors = at.run.generations.restore(at._restore)
    return at.position, at.learner.tensors(), bool(errors)


def hold_checkpoints(value: Any, folder: Path) -> None:
    position, tensors, _ = value
    assert (position.epoch, position.step) in ((0, 0), (1, 3), (2, 6)), "a checkpoint goes on where it was made"
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())


def lesser_checkpoints(value: Any, original: Any, sample: Path) -> bool:
    """The newest one under the name of another, the checkpoint before, or none at all where both are gone."""
    position, tensors, _ = value
    if plain((position, tensors)) == plain(original[:2]):
        return True
    with TemporaryDirectory() as place:
        shutil.copytree(sample, place, dirs_exist_ok=True)
        for _ in range(2):
            RunDirectory(Path(place)).generations.paths()[0].unlink()
            if plain((position, tensors)) == plain(read_checkpoints(Path(place))[:2]):
                return True
    return False


def make_weights(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    storage.write(folder / "w.safetensors", "x", build(**MODEL).state_dict(), {})  # type: ignore[arg-type]


def read_weights(folder: Path) -> nn.Module:
    return _read(folder / "w.safetensors")


def _read(path: Path) -> nn.Module:
    net = build(**MODEL)  # type: ignore[arg-type]
    files.load_into(net, files.read(path), path, "take another")
    return net


def make_saved(old: bool) -> Maker:
    """A training script's checkpoint, in torch's archive or as it was before there was one."""

    def make(folder: Path, seed: int) -> None:
        torch.manual_seed(seed)
        state = {f"module.{name}": value for name, value in build(**MODEL).state_dict().items()}  # type: ignore[arg-type]
        content = {"state_dict": state, "epoch": 3, "best": torch.tensor(0.5)}
        torch.save(content, folder / "w.pt", _use_new_zipfile_serialization=not old)

    return make


def read_saved(folder: Path) -> nn.Module:
    return _read(folder / "w.pt")


def hold_saved(value: Any, folder: Path) -> None:
    stored = torch.load(folder / "w.pt", weights_only=True)["state_dict"]
    for name, weight in value.state_dict().items():
        assert torch.equal(weight.double(), stored[f"module.{name}"].double()), name
        assert bool(weight.isfinite().all()), name


def hold_weights(value: Any, folder: Path) -> None:
    stored = load_file(folder / "w.safetensors")
    for name, weight in value.state_dict().items():
        assert torch.equal(weight.double(), stored[name].double()), name
        assert bool(weight.isfinite().all()), name


def make_recipe(folder: Path, seed: int) -> None:
    text = recipes.text("mnist5k-l2" if seed else "cifar10-compact-linf-lazy")
    (folder / "mine.toml").write_text(text)


def hold_recipe(value: Any, folder: Path) -> None:
    table = toml.parse((folder / "mine.toml").read_text(), "again")
    for name in ("epochs", "batch_size", "held_out", "data", "seed"):
        assert getattr(value, name) == table.get(name, getattr(value, name)), name
    assert plain(dict(value.model)) == plain(table["model"])


def make_shipped(folder: Path, seed: int) -> None:
    for name in ("config.toml", "robustbench.json", "card.md"):
        shutil.copy(networks.folder("cifar10-linf" if seed else "cifar10-l2") / name, folder)
