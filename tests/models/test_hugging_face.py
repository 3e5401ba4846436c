"""`hf:` with a stand-in for transformers, whose own classifiers `make test-extras` tries."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from gradreg.errors import GradregError, ModelError
from gradreg.models import build
from gradreg.runs.opening import open_model
from gradreg.runs.trust import check_trusted

CONFIG = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25], "size": {"height": 8, "width": 8}}


class Classifier(nn.Module):
    """A classifier of transformers: keywords in, an object out."""

    def __init__(self, num_labels: int, weight: float) -> None:
        super().__init__()
        self.classifier = nn.Linear(3, num_labels)
        nn.init.constant_(self.classifier.weight, weight)
        self.act = nn.ReLU()

    def forward(self, pixel_values: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.act(self.classifier(pixel_values.mean((2, 3)))), loss=None)


class Calls:
    """What the library was asked for."""

    def __init__(self) -> None:
        self.places: list[tuple[str, dict[str, Any]]] = []

    def config(self, place: str, **options: Any) -> SimpleNamespace:
        self.places.append((place, options))
        if "missing" in place:
            raise OSError(f"{place} is not a local folder\nand is not a valid model identifier")
        return SimpleNamespace(num_labels=10)

    def pretrained(self, place: str, config: Any, **options: Any) -> nn.Module:
        self.places.append((place, options))
        return Classifier(config.num_labels, 1.0)

    def fresh(self, config: Any, **options: Any) -> nn.Module:
        self.places.append(("", options))
        return Classifier(config.num_labels, 0.0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    auto = SimpleNamespace(from_pretrained=calls.pretrained, from_config=calls.fresh)
    fake = SimpleNamespace(
        AutoConfig=SimpleNamespace(from_pretrained=calls.config), AutoModelForImageClassification=auto
    )
    monkeypatch.setitem(sys.modules, "transformers", fake)
    monkeypatch.setitem(sys.modules, "transformers.utils", SimpleNamespace(cached_file=lambda *_, **__: None))
    return calls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "vit"


def test_a_folder_comes_with_its_preprocessing_and_without_the_network(folder: Path, calls: Calls) -> None:
    model = build(f"hf:{folder}", classes=10, pretrained=True)
    pixels = torch.rand(2, 3, 8, 8)
    with torch.no_grad():
        expected = ((pixels - 0.5) / 0.25).mean((2, 3)).sum(1, keepdim=True).expand(2, 10)
        weights = model.get_submodule("model.model.classifier")
        assert isinstance(weights, nn.Linear)
        assert_close(model(pixels), (expected + weights.bias).relu())
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert calls.places
    for place, options in calls.places:
        assert place == str(folder)
        assert options["local_files_only"] is True
        assert options["trust_remote_code"] is False


def test_a_name_of_the_hub_may_be_downloaded_but_none_of_its_code_runs(calls: Calls) -> None:
    build("hf:google/vit", classes=10, pretrained=True, mean=0.5, std=0.5)
    assert [options["local_files_only"] for _, options in calls.places] == [False, False]
    assert all(options["trust_remote_code"] is False for _, options in calls.places)


def test_fresh_weights_unless_told_otherwise(folder: Path, calls: Calls) -> None:
    fresh = build(f"hf:{folder}", classes=4, activation="gelu")
    layer = fresh.get_submodule("model.model.classifier")
    assert isinstance(layer, nn.Linear)
    assert layer.weight.shape == (4, 3)
    assert not layer.weight.any()
    assert isinstance(fresh.get_submodule("model.model.act"), nn.GELU)


def test_an_opened_model_keeps_the_classes_that_it_was_trained_for(folder: Path, calls: Calls, tmp_path: Path) -> None:
    from PIL import Image

    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            Image.new("RGB", (20, 16)).save(tmp_path / "photos" / part / name / "a.png")
    with pytest.raises(ModelError, match="must be evaluated on data with 10 classes; got data with 2"):
        open_model(f"hf:{folder}", f"folder:{tmp_path / 'photos'}")
    opened = open_model(str(_weights(tmp_path)), f"folder:{tmp_path / 'photos'}", architecture=f"hf:{folder}")
    assert opened.data.test.floats([0]).shape == (1, 3, 8, 8), "images get the size that the model takes"


def _weights(folder: Path) -> Path:
    """As the library itself names them."""
    torch.save(Classifier(2, 3.0).state_dict(), folder / "w.pt")
    return folder / "w.pt"


def test_other_statistics_take_the_place_of_its_own(folder: Path, calls: Calls) -> None:
    model = build(f"hf:{folder}", classes=10, mean=[0.1, 0.2, 0.3], std=1.0)
    normalize = model.get_submodule("normalize")
    assert_close(normalize(torch.zeros(1, 3, 1, 1)).flatten(), -torch.tensor([0.1, 0.2, 0.3]))
    (folder / "preprocessor_config.json").write_text(json.dumps(CONFIG | {"do_pad": True}))
    with pytest.raises(ModelError, match="asks for do_pad"):
        build(f"hf:{folder}", classes=10)
    padded = build(f"hf:{folder}", classes=10, mean=0.5, std=0.5)
    assert [name for name, _ in padded.named_children()] == ["resize", "normalize", "model"], "the size is kept"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("hf:", "Add the name of a model of hf, for example 'hf:google/vit-base-patch16-224'"),
        ("hf:./nowhere", "There is no folder nowhere"),
        ("hf:a/b/c", "must be a folder or a name such as google/vit-base; got 'a/b/c'"),
        ("hf:missing/vit", "could not be built by transformers: missing/vit is not a local folder and is not a valid"),
        ("hf:google/vit", "has no preprocessor_config.json, so its normalisation is not known: pass mean= and std="),
    ],
)
def test_what_cannot_be_built_is_one_sentence(name: str, sentence: str, calls: Calls) -> None:
    with pytest.raises(ModelError, match=sentence) as caught:
        build(name, classes=10)
    assert "\n" not in str(caught.value)


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(GradregError, match=r"transformers is not installed: run pip install 'gradreg\[hf\]'"):
        gradreg.build("hf:google/vit", classes=10)


def test_a_file_that_names_one_must_be_trusted() -> None:
    for name in ("hf:google/vit", "hf:/somewhere"):
        with pytest.raises(GradregError, match="--trust hf"):
            check_trusted({"name": name}, "config.toml", False)
        check_trusted({"name": name}, "config.toml", "hf")
