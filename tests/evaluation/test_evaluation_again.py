"""The command that a report prints repeats the evaluation, whatever named the model, its images and the options."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from gradreg import build
from gradreg.cli import main
from gradreg.codec import split
from gradreg.errors import ConfigError
from gradreg.evaluation import Evaluation, load
from gradreg.evaluation.table import dumps, take_columns
from gradreg.report.page import provenance
from gradreg.runs.opening import open_model
from tiny_networks import tiny_run


def evaluated(command: list[str], out: Path) -> Evaluation:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *command, "--device", "cpu", "--out", str(out)])
    assert ended.value.code in (0, None)
    return load(out)


def figures(evaluation: Evaluation) -> str:
    """All columns of the table, without the gallery."""
    plain, tensors = split(evaluation)
    return dumps(take_columns(plain, {path: each for path, each in tensors.items() if ".gallery." not in path}))


def repeats(command: list[str], folder: Path) -> Evaluation:
    first = evaluated(command, folder / "first")
    printed = shlex.split(provenance.of(first).commands[-1])
    assert printed[:2] == ["gradreg", "evaluate"]
    again = evaluated(printed[2:], folder / "again")
    assert figures(again) == figures(first)
    assert again.settings == first.settings
    return first


QUICK = ["--attacks", "quick", "--images", "6", "--no-diagnosis"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits")


def test_a_run_with_every_option(digits: Path, tmp_path: Path) -> None:
    options = [
        "--threat",
        "l2",
        "--topk",
        "3",
        "--regularity",
        "paper",
        "--calibration-images",
        "160",
        "--seed",
        "4",
    ]
    smoothing = ["--smoothing", "0.5", "--samples", "300", "--alpha", "1/100", "--radii", "0.1,1/3"]
    found = repeats([str(digits), *QUICK, *options, *smoothing], tmp_path)
    assert found.settings.options["radii"] == "0.1,1/3"
    assert found.threats["l2"].bounded is not None
    assert found.threats["l2"].bounded.calibration_images == 160


def test_a_weights_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = build("small", classes=10, channels=1, activation="relu")
    save_file(network.state_dict(), tmp_path / "plain.safetensors")
    named = [str(tmp_path / "plain.safetensors"), "--architecture", "small", "--set", "activation=relu"]
    found = repeats([*named, "--data", "mnist5k", *QUICK, "--threat", "l2", "--regularity", "local"], tmp_path)
    assert found.subject.arguments == ("--data", "mnist5k", "--architecture", "small", "--set", "activation=relu")


def photographs(root: Path, sides: tuple[int, int] = (40, 48)) -> str:
    dice = np.random.default_rng(0)
    for part, count in (("train", 12), ("val", 8)):
        for label, offset in (("dark", 0), ("light", 100)):
            (root / part / label).mkdir(parents=True)
            for number in range(count // 2):
                pixels = dice.integers(0, 120, (*sides, 3)) + offset
                Image.fromarray(pixels.astype(np.uint8)).save(root / part / label / f"{number}.png")
    return f"folder:{root}"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run whose first phase has small copies of the images, the images, and the copies."""
    root = tmp_path_factory.mktemp("photos")
    images, copies = photographs(root / "images"), photographs(root / "copies", (20, 24))
    phases = [{"start": 0, "size": 16, "data": copies}, {"start": 1, "size": 24}]
    model = {"name": "compact", "width": 2}
    return (
        tiny_run(root / "run", data=images, model=model, held_out=4, batch_size=4, workers=0, phases=phases),
        images,
        copies,
    )


def test_a_folder_keeps_the_size_of_the_run(photos: tuple[Path, str, str], tmp_path: Path) -> None:
    run, images, copies = photos
    found = repeats([str(run), *QUICK, "--threat", "l2", "--regularity", "local"], tmp_path)
    assert found.data.shape == (3, 24, 24), "that of the last phase"
    assert found.data.name == images, "not the copies of an earlier phase"
    assert found.clean == (int(found.clean[0]) if found.clean else -1, 8), "of all test files"
    assert open_model(str(run), copies).data.test.floats([0]).shape == (1, 3, 24, 24), "another folder, the same size"
    assert open_model(str(run), size=32).data.test.floats([0]).shape == (1, 3, 32, 32)


def test_a_size_can_be_given(photos: tuple[Path, str, str], tmp_path: Path) -> None:
    run, _, _ = photos
    found = repeats([str(run), *QUICK, "--threat", "l2", "--regularity", "local", "--size", "28"], tmp_path)
    assert found.data.shape == (3, 28, 28)
    with pytest.raises(ConfigError, match=re.escape("size must be at least 1; got 0.")):
        open_model(str(run), size=0)


def test_images_of_one_size_keep_it_and_the_network_resizes_them(digits: Path, tmp_path: Path) -> None:
    found = repeats([str(digits), *QUICK, "--threat", "l2", "--regularity", "local", "--size", "32"], tmp_path)
    assert found.data.shape == (1, 28, 28)
    assert "--size 32" in provenance.of(found).commands[-1]


def test_a_model_of_python_has_no_command(digits: Path, tmp_path: Path) -> None:
    found = evaluated([str(digits), *QUICK, "--threat", "l2", "--regularity", "local"], tmp_path / "first")
    assert provenance.of(replace(found, subject=replace(found.subject, source="Python"))).commands == ()
