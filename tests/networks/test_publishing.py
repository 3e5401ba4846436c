"""A network made in Python as a folder for a hub: its weights, a card whose figures are the evaluation's, the curve."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gradreg
from evaluation_toys import CLASSES, linear, quick, toy
from gradreg.errors import ConfigError, MissingPackageError
from gradreg.report.cards.hub import FILES
from gradreg.runs.opening import open_model


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    quick(folder, threat=("linf", "l2"))
    return folder


def front_matter(card: str) -> dict[str, object]:
    """Each line is a key and a JSON value, which is YAML too."""
    lines = card.split("---\n")[1].splitlines()
    return {key: json.loads(value) for key, value in (line.split(": ", 1) for line in lines)}


def test_a_folder_holds_what_a_hub_shows(evaluated: Path, tmp_path: Path) -> None:
    folder = gradreg.publish(linear(), evaluated, tmp_path / "toy", license="mit")
    assert {path.name for path in folder.iterdir()} == {*FILES} - {"model.onnx"}
    record = gradreg.evaluation.load(evaluated)
    card = (folder / "README.md").read_text()
    facts = front_matter(card)
    assert facts["license"] == "mit"
    results = facts["model-index"][0]["results"][0]  # type: ignore[index]
    shown = {metric["name"]: metric["value"] for metric in results["metrics"]}
    for eps, name in ((2 / 255, "2/255"), (8 / 255, "8/255")):
        robust = record.threats["linf"].robust_accuracy(eps).value
        assert shown[f"robust accuracy, l∞ {name}"] == round(100 * robust, 2)
        assert f"{100 * robust:.1f} %" in card.split("## Robustness curve")[1]
    assert "![Robust accuracy against distance](robustness.png)" in card
    assert "demonstration" not in card
    curve = json.loads((folder / "robustness.json").read_text())["l2"]
    for distance, accuracy in zip(curve["distance"], curve["robust_accuracy"], strict=True):
        assert accuracy == pytest.approx(float((record.threats["l2"].distance.double() > distance).double().mean()))
    assert json.loads((folder / "records.json").read_text()) == json.loads(json.dumps(record.to_dict()))
    config = json.loads((folder / "config.json").read_text())
    assert tuple(config["id2label"].values()) == CLASSES
    assert (folder / "model.safetensors").stat().st_mode == (folder / "README.md").stat().st_mode


def test_the_weights_come_back_into_the_network(evaluated: Path, tmp_path: Path) -> None:
    folder = gradreg.publish(linear(), evaluated, tmp_path / "toy")
    other = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    x = torch.rand(5, 3, 4, 4)
    for path in (folder, folder / "model.safetensors"):
        nn.init.zeros_(other[1].weight)  # type: ignore[arg-type]
        assert torch.equal(gradreg.load(path, architecture=other)(x), linear()(x))
    with pytest.raises(ConfigError, match="weights of a Sequential that was made in Python, so pass architecture="):
        gradreg.load(folder)
    assert "license" not in front_matter((folder / "README.md").read_text())


def test_normalisation_is_said(tmp_path: Path) -> None:
    model = gradreg.Classifier(linear(), mean=[0.1, 0.2, 0.3], std=[1.0]).eval()
    quick(tmp_path / "evaluation", model=model, data=toy(), smoothing=())
    folder = gradreg.publish(model, tmp_path / "evaluation", tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    assert config["input"]["mean"] == pytest.approx([0.1, 0.2, 0.3])
    assert config["input"]["std"] == [1.0]
    x = torch.rand(5, 3, 4, 4)
    for architecture in (nn.Sequential(nn.Flatten(), nn.Linear(48, 4)), model):
        loaded = gradreg.load(folder, architecture=architecture)
        assert torch.equal(loaded(x), model(x)), "the normalisation comes back too"
        assert not loaded.training
    (folder / "config.json").write_text("{}")
    plain = gradreg.load(folder / "model.safetensors", architecture=nn.Sequential(nn.Flatten(), nn.Linear(48, 4)))
    assert torch.equal(plain(x), linear()(x)), "a folder of another library is no published one"


def test_the_command_line_takes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "published_code.py").write_text(
        "from torch import nn\n\ndef flat(classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(48, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    pixels, labels = toy().test.pixels.numpy(), toy().test.labels.numpy()  # type: ignore[union-attr]
    np.savez(tmp_path / "toy.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    model = gradreg.Classifier(linear(), mean=[0.1], std=[0.5]).eval()
    quick(tmp_path / "evaluation", model=model, data=toy(), smoothing=())
    folder, x = gradreg.publish(model, tmp_path / "evaluation", tmp_path / "out"), torch.rand(5, 3, 4, 4)
    opened = open_model(str(folder), f"npz:{tmp_path / 'toy.npz'}", architecture="published_code:flat")
    assert torch.equal(opened.model(x), model(x))


def test_a_function_that_reads_answers_must_be_given_again(tmp_path: Path) -> None:
    model = gradreg.Classifier(linear(), output=lambda found: 2 * found).eval()
    quick(tmp_path / "evaluation", model=model, data=toy(), smoothing=())
    folder = gradreg.publish(model, tmp_path / "evaluation", tmp_path / "out")
    network, x = nn.Sequential(nn.Flatten(), nn.Linear(48, 4)), torch.rand(5, 3, 4, 4)
    with pytest.raises(ConfigError, match="published with a function that reads the answers"):
        gradreg.load(folder, architecture=network)
    again = gradreg.Classifier(network, output=lambda found: 2 * found)
    assert torch.equal(gradreg.load(folder, architecture=again)(x), model(x))


def test_an_evaluation_of_other_weights_is_refused(evaluated: Path, tmp_path: Path) -> None:
    other = linear()
    nn.init.zeros_(other[1].bias)  # type: ignore[index]
    with pytest.raises(ConfigError, match="not an evaluation of these weights"):
        gradreg.publish(other, evaluated, tmp_path / "toy")
    kept = shutil.copytree(evaluated, tmp_path / "copy")
    shutil.rmtree(kept / ".state")
    with pytest.raises(ConfigError, match="evaluate again with folder="):
        gradreg.publish(linear(), kept, tmp_path / "toy")
    assert not (tmp_path / "toy").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"holds notes\.txt"):
        gradreg.publish(linear(), evaluated, mine, replace=True)
    inside = gradreg.Averaged(lambda x: linear()(x), draws=1)
    with pytest.raises(ConfigError, match="whose weights can be saved; got Averaged, which asks a function"):
        gradreg.publish(inside, evaluated, tmp_path / "toy")
    with pytest.raises(ConfigError, match=r"must be an nn\.Module"):
        gradreg.publish(lambda x: x, evaluated, tmp_path / "toy")  # type: ignore[arg-type]


def test_a_folder_is_replaced_if_that_is_said(evaluated: Path, tmp_path: Path) -> None:
    folder = gradreg.publish(linear(), evaluated, tmp_path / "toy")
    with pytest.raises(ConfigError, match="exists"):
        gradreg.publish(linear(), evaluated, folder)
    gradreg.publish(linear(), evaluated, folder, replace=True, license="apache-2.0")
    assert front_matter((folder / "README.md").read_text())["license"] == "apache-2.0"


def test_onnx_names_its_extra_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"gradreg\[onnx\]"):
        gradreg.export_onnx(linear(), tmp_path / "net.onnx", (3, 4, 4))
    assert not (tmp_path / "net.onnx").exists()
