"""Recipes for anybody's images: nothing but their place is given; and a network of which a part is trained."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import gradreg
from commands import status
from gradreg.errors import ConfigError
from gradreg.runs.finetuning import NAME, from_network
from gradreg.runs.recipes import config
from gradreg.training.found_out import found_out


def photos(folder: Path, count: int = 20, side: int = 20) -> str:
    """Bright and dark images of two classes, a little wider than high."""
    draw = np.random.default_rng(0)
    for part in ("train", "val"):
        for label, name in enumerate(("dark", "light")):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(100, size=(side, side + 6, 3)) + 140 * label
                Image.fromarray(pixels.astype(np.uint8)).save(folder / part / name / f"{number}.png")
    return f"folder:{folder}"


@pytest.mark.parametrize("kind", ["undefended", "l2", "linf", "at", "finetune"])
def test_nothing_is_needed_but_the_place_of_the_images(kind: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    few = ["--set", "epochs=1", "--set", "workers=0", "--set", "device=cpu"]
    named = ["train", f"folder-{kind}", "--run", str(run), "--set", f"data={photos(tmp_path / 'photos')}"]
    assert status([*named, *few]) == 0
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    assert row["held_out"] == 4
    model = gradreg.load(run)
    assert model(torch.rand(2, 3, 20, 20)).shape == (2, 2)


def test_what_is_found_out_and_what_stays(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    found = found_out(config("folder-l2", [f"data={data}"]), None)
    assert (found.size, found.held_out, found.batch_size, found.auto) == (20, 4, 32, False)
    kept = found_out(config("folder-l2", [f"data={data}", "size=24", "held_out=7", "batch_size=8"]), None)
    assert (kept.size, kept.held_out, kept.batch_size) == (24, 7, 8)
    large = found_out(config("folder-l2", [f"data={photos(tmp_path / 'large', 3, 200)}"]), None)
    assert large.size == 64


def test_a_frozen_part_keeps_its_weights_and_statistics() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = torch.rand(8, 3, 8, 8), torch.arange(8) % 2
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 8, "probe": {"threat": "l2", "eps": 0.1, "steps": 2}}
    gradreg.fit(model, ([(x, y)], [(x, y)]), {"name": "gradient", "eps": 0.1}, train_only=("3",), **settings)
    after = model.state_dict()
    for name, value in before.items():
        assert torch.equal(after[name], value) == (not name.startswith("3.")), name
    assert all(weight.requires_grad for weight in model.parameters()), "as it was before"
    assert not any(module._forward_pre_hooks for module in model.modules())
    with pytest.raises(ConfigError, match="train_only must name parameters of the network; got 'head'"):
        gradreg.fit(model, ([(x, y)], [(x, y)]), train_only=("head",), **settings)


def test_a_trained_network_with_a_fresh_last_layer() -> None:
    assert config("folder-finetune", ["data=folder:x"]).model["name"] == NAME
    model, trained = from_network(7), gradreg.load("cifar10-l2")
    fresh = model.get_submodule("head")
    assert isinstance(fresh, nn.Linear)
    assert fresh.out_features == 7
    ours, theirs = model.state_dict(), trained.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs if not name.startswith("head."))
