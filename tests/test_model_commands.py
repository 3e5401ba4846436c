"""`gradreg evaluate`, `report`, `diagnose` and `inspect` as they are typed, on a weights file and on a function."""

import copy
import json
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_model
from torch import nn
from torch.testing import assert_close

from bench.digits import trained
from commands import status
from gradreg.data import Images, load
from gradreg.diagnosis.broken import broken_models
from gradreg.runs.opening import open_model

DATA = ["--data", "mnist5k"]
NAMED = ["--architecture", "small", "--set", "mean=0.13", "--set", "std=0.31", *DATA]


@cache
def network() -> nn.Module:
    images = load("mnist5k").train
    assert isinstance(images, Images)
    return trained(images, eps=0.0, epochs=1)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small network after one epoch on digits: hardly robust, but honest."""
    path = tmp_path_factory.mktemp("weights") / "digits.safetensors"
    save_model(network(), str(path))
    return path


def test_from_weights_to_a_report(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "evaluation", tmp_path / "report.html"
    few = ["--images", "8", "--attacks", "quick", "--threat", "l2", "--regularity", "local", "--out", str(out)]
    assert status(["evaluate", str(weights), *NAMED, *few]) == 0
    facts = json.loads((out / "evaluation.json").read_text())
    assert len((out / "images.csv").read_text().splitlines()) == 1 + 8
    flags = {flag["code"]: flag["finding"] for flag in facts["threats"]["l2"]["flags"]}
    assert " at 1.5" in flags["radius-does-not-help"], "the radius that robust error on digits is quoted at"
    assert status(["report", str(out), "-o", str(page)]) == 0
    assert "digits" in page.read_text()
    capsys.readouterr()
    assert status(["report", str(out), "--format", "md"]) == 0
    clean = facts["summary"]["clean_error_of_the_whole_test_set"]
    assert f"{100 * clean:.1f} %" in capsys.readouterr().out


def test_a_diagnosis_has_an_exit_status(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = tmp_path / "flags.json"
    few = ["--images", "12", "--eps", "0.1", "-o", str(said)]
    assert status(["diagnose", str(weights), *NAMED, *few]) == 0
    assert "no sign of masking in these tests" in capsys.readouterr().out
    flags = json.loads(said.read_text())["flags"]
    assert flags
    assert status(["diagnose", str(weights), *NAMED, "--images", "12", "-o", str(said)]) == 0
    assert json.loads(said.read_text())["flags"] == flags, "0.1 is the radius of the digits"
    capsys.readouterr()
    assert status(["diagnose", "test_model_commands:quantised", *DATA, "--images", "12"]) == 1
    assert "zero-gradient-margin" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["config.toml", "last.safetensors", "evaluation.json", "."])
def test_flags_are_not_written_over_files_of_runs(name: str, weights: Path, tmp_path: Path) -> None:
    """Nor over a folder, which would be found out after all the work."""
    (tmp_path / name).is_dir() or (tmp_path / name).write_text("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gradreg.cli.diagnose.diagnose", lambda *_, **__: pytest.fail("it was refused too late"))
        assert status(["diagnose", str(weights), *NAMED, "-o", str(tmp_path / name)]) == 2
    assert name == "." or (tmp_path / name).read_text() == "kept"


def test_an_inspection_is_a_picture(weights: Path, tmp_path: Path) -> None:
    picture = tmp_path / "image.png"
    few = ["--attacks", "fmn", "--samples", "100", "-o", str(picture)]
    assert status(["inspect", "3", "--model", str(weights), *NAMED, *few]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_statistics_of_a_function_s_network(capsys: pytest.CaptureFixture[str]) -> None:
    """The digits' network has its own normalisation; the same one around a function without any gives its answers."""
    opened = open_model("test_model_commands:without_statistics", "mnist5k", mean=0.13, std=0.31)
    x = opened.data.test.floats(slice(8))
    with torch.no_grad():
        assert_close(opened.model(x), network()(x), rtol=1e-4, atol=1e-4)
    named = ["test_model_commands:without_statistics", *DATA, "--mean", "0.13", "--std", "0.31", "--images", "4"]
    assert status(["diagnose", *named]) == 0
    capsys.readouterr()
    assert status(["diagnose", *named[:-2], "--std", "none"]) == 2
    assert "Pass both mean and std (--mean, --std)" in capsys.readouterr().err
    assert status(["diagnose", *named[:4], "a third", "--std", "1"]) == 2
    assert "--mean must be comma-separated numbers such as 0.485,0.456,0.406; got 'a third'" in capsys.readouterr().err
    assert status(["diagnose", "cifar10-l2", "--mean", "0.5", "--std", "0.5"]) == 2
    assert "normalises its images itself" in capsys.readouterr().err


def without_statistics(classes: int) -> nn.Module:
    """The trained network without its first layer."""
    model = copy.deepcopy(network())
    assert isinstance(model, nn.Sequential)
    model[0] = nn.Identity()
    return model


def quantised(**_: object) -> nn.Module:
    """The same network with a rounded input, so that it has no gradient; by name, as a user's own would be."""
    return broken_models(network())["input quantised"][0]
