"""`gradreg train` and `gradreg recipes` as a user types them."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import weights

import gradreg
from gradreg.cli import main
from gradreg.cli import train as command
from gradreg.errors import Interrupted
from gradreg.runs.checkpoints import Generations

QUICK = ["--set", "epochs=2", "--set", "held_out=3900", "--set", "probe.images=10", "--set", "batch_size=25"]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["train", *arguments])
    return int(end.value.code or 0)


def test_a_recipe_becomes_a_run_that_can_be_loaded_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert run("mnist5k-l2", "--run", str(folder), *QUICK, "--set", "objective.lam=1") == 0
    said = capsys.readouterr().out
    assert said.count("epoch ") == 3
    assert "Best epoch" in said
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["model"] == {"name": "small", "classes": 10, "channels": 1}
    assert config["objective"]["lam"] == 1
    assert [json.loads(line)["epoch"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == [1, 2]

    model = gradreg.load(folder)
    assert not model.training
    best = weights(folder, "best")
    assert all(torch.equal(best[name], tensor) for name, tensor in model.state_dict().items())

    assert run("mnist5k-l2", "--run", str(folder), *QUICK) == 2
    assert "is not empty" in capsys.readouterr().err
    last = weights(folder)
    Generations(folder).paths()[0].unlink()
    assert run("--run", str(folder), "--resume") == 0
    assert all(torch.equal(last[name], tensor) for name, tensor in weights(folder).items())


def test_mistakes_are_found_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "run")
    for arguments, message in {
        ("mnist5k-l2", "--set", "epoch=3"): "There is no setting 'epoch' (did you mean 'epochs'?).",
        ("mnist5k-l2", "--set", "size=32"): "only image folders are resized",
        ("mnist5k-l2", "--set", "rectangular=true"): "rectangular must be false for mnist5k",
        ("mnist5k-l2", "--set", "device=gpu"): "device must be 'auto', 'cpu'",
        ("mnist5k-l2", "--set", "device=cuda:7"): "device must be one that this machine has",
        ("mnist5k-l7",): "There is no recipe 'mnist5k-l7'",
        (): "Expected a recipe: `gradreg recipes` lists them",
        ("--resume",): "holds no run",
    }.items():
        assert run(*arguments, "--run", folder) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_signal_ends_with_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, **options: object) -> None:
        raise Interrupted("Stopped in epoch 2, step 7 and saved: continue with --resume.", 15)

    monkeypatch.setattr(command, "train", stopped)
    assert run("mnist5k-l2", "--run", str(tmp_path / "run")) == 143


def test_recipes_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main(["recipes"])
    listed = capsys.readouterr().out
    for name in ("mnist5k-at", "fashion-mnist-l2", "cifar10-compact-linf", "cifar10-paper-at-8", "imagenet-l2-0.1"):
        assert name in listed
    main(["recipes", "mnist5k-l2"])
    assert capsys.readouterr().out.startswith("# gradreg train mnist5k-l2 --run runs/mnist5k-l2\n")


def generated_folder(root: Path, images: int) -> None:
    """Two classes of noise, dark and light, as JPEG files of odd sizes."""
    dice = np.random.default_rng(0)
    for part, count in (("train", images), ("val", 4)):
        for label, offset in (("dark", 0), ("light", 100)):
            (root / part / label).mkdir(parents=True)
            for number in range(count // 2):
                pixels = dice.integers(0, 120, (70 + number % 9, 80, 3)) + offset
                Image.fromarray(pixels.astype(np.uint8)).save(root / part / label / f"{number}.jpg")


def test_phases_change_sizes_and_batches(tmp_path: Path) -> None:
    generated_folder(tmp_path / "images", 40)
    phases = "phases=[{start=0,size=16,batch_size=10},{start=1,size=24,batch_size=5,min_scale=0.5,rectangular=true}]"
    settings = [f"data=folder:{tmp_path / 'images'}", "model={name='compact',width=2}", "epochs=2", "held_out=10"]
    settings += ["workers=0", phases, "probe.images=4", "schedule={name='one-cycle'}", "optimizer.lr=0.05"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert run("imagenet-l2-0.1", "--run", str(tmp_path / "run"), *arguments) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [3, 9]


@pytest.mark.slow
def test_the_imagenet_recipe_runs_end_to_end(tmp_path: Path) -> None:
    """All three phases of the recipe with its network, at a quarter of its sizes and an epoch each."""
    generated_folder(tmp_path / "images", 220)
    phases = "[{start=0,size=32,batch_size=50},{start=1,size=56,batch_size=25,min_scale=0.087},"
    phases += "{start=2,size=72,batch_size=20,min_scale=0.5,rectangular=true}]"
    settings = [f"data=folder:{tmp_path / 'images'}", "epochs=3", "held_out=20", "probe.images=10", f"phases={phases}"]
    settings += ["schedule.knots=[[0,0.02],[1,0.01],[3,0.001]]"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert run("imagenet-l2-0.1", "--run", str(tmp_path / "run"), *arguments) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 12, 22]
