"""What `gradreg evaluate` can be pointed at, and what it says of everything else."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from gradreg.data import load
from gradreg.errors import GradregError
from gradreg.models import build
from gradreg.provenance import processor
from gradreg.runs import load as load_run
from gradreg.runs.opening import open_model
from gradreg.training import fit
from tiny_networks import logits, tiny_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of two steps."""
    return tiny_run(tmp_path_factory.mktemp("runs") / "tiny")


def test_a_run_knows_its_data_its_network_and_what_it_cost(run: Path) -> None:
    state = torch.get_rng_state()
    opened = open_model(str(run))
    assert torch.equal(torch.get_rng_state(), state)
    subject = opened.subject
    assert (subject.name, subject.source, subject.architecture) == ("tiny", str(run), "small")
    assert (subject.objective, subject.epochs) == ("gradient", 2)
    assert subject.hours is not None
    assert 0 < subject.hours < 1
    assert subject.machine == processor()
    assert subject.recipe is not None
    assert subject.recipe["batch_size"] == 10
    assert subject.parameters == sum(weight.numel() for weight in opened.model.parameters())
    assert opened.data.name == "mnist5k"
    assert not opened.model.training
    assert torch.equal(logits(opened.model), logits(load_run(run)))
    last = open_model(str(run / "last.safetensors"))
    assert last.subject.name == "tiny (last)"
    assert torch.equal(logits(last.model), logits(load_run(run, "last")))


def test_a_training_checkpoint_is_not_a_weights_file(run: Path) -> None:
    checkpoint = next(run.glob("state-*"))
    with pytest.raises(GradregError, match=r"must be best\.safetensors or last\.safetensors of the run"):
        open_model(str(checkpoint))


def test_weights_with_the_name_of_their_network(tmp_path: Path) -> None:
    model = build("small", classes=10, channels=1, activation="gelu").eval()
    save_model(model, str(tmp_path / "digits.safetensors"))
    path, options = str(tmp_path / "digits.safetensors"), {"activation": "gelu"}
    opened = open_model(path, "mnist5k", architecture="small", options=options)
    assert opened.subject.name == "digits"
    assert opened.subject.architecture == "small"
    assert opened.subject.objective is None
    assert torch.equal(logits(opened.model), logits(model))


def test_a_run_made_in_python_needs_the_name_of_its_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("small", classes=10, channels=1)
    fit(model, load("mnist5k"), "undefended", run=tmp_path / "run", epochs=1, batch_size=10, held_out=3980)
    opened = open_model(str(tmp_path / "run"), "mnist5k", architecture="small")
    assert torch.equal(logits(opened.model), logits(model.eval()))
    assert (opened.subject.name, opened.subject.objective, opened.subject.epochs) == ("run", "undefended", 1)


def test_a_function_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evaluated_by_name.py").write_text(
        "from torch import nn\ndef net(classes): return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    opened = open_model("evaluated_by_name:net", "mnist5k")
    assert opened.subject.name == "evaluated_by_name:net"
    assert logits(opened.model).shape == (20, 10)


class Pretrained(nn.Module):
    """A library's network, trained for ten classes."""

    def __init__(self, num_classes: int, in_chans: int = 3, pretrained: bool = False) -> None:
        super().__init__()
        self.pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "num_classes": self.trained_for}
        self.head = nn.Linear(784 * in_chans, num_classes)
        nn.init.constant_(self.head.weight, 1.0 if pretrained else 0.0)

    trained_for = 10

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(x.flatten(1))
        return found


def head(model: nn.Module) -> Tensor:
    layer = model.get_submodule("model.head")
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach().flatten()


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(name: str, **options: Any) -> nn.Module:
        return Pretrained(**options)

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model, list_models=lambda: ["net"]))


def test_a_library_s_network_comes_with_its_weights(
    timm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_model("timm:net", "mnist5k")
    assert set(head(opened.model).tolist()) == {1.0}
    save_file({"head.weight": torch.full((10, 784), 2.0), "head.bias": torch.zeros(10)}, tmp_path / "w.safetensors")
    fine = open_model(str(tmp_path / "w.safetensors"), "mnist5k", architecture="timm:net")
    assert set(head(fine.model).tolist()) == {2.0}
    monkeypatch.setattr(Pretrained, "trained_for", 1000)
    with pytest.raises(GradregError, match="timm:net must be evaluated on data with 1000 classes; got data with 10"):
        open_model("timm:net", "mnist5k")


def weights(folder: Path, **tensors: Tensor) -> str:
    save_file(tensors or {"a": torch.zeros(1)}, folder / "w.safetensors")
    return str(folder / "w.safetensors")


def cut(folder: Path) -> str:
    path = Path(weights(folder))
    path.write_bytes(path.read_bytes()[:20])
    return str(path)


def of_another_shape(folder: Path) -> str:
    model = build("small", classes=7, channels=1)
    save_model(model, str(folder / "w.safetensors"))
    return str(folder / "w.safetensors")


def started(folder: Path) -> str:
    (folder / "config.toml").write_text('data = "mnist5k"\nmodel = { name = "small", classes = 10, channels = 1 }\n')
    return str(folder)


MNIST = {"data": "mnist5k"}
BAD: dict[str, tuple[Callable[[Path], str], dict[str, Any], str]] = {
    "no such thing": (lambda f: "nothing", MNIST, "There is no model nothing: pass a run directory"),
    "a run's settings": (
        lambda f: str(Path(started(f)) / "config.toml"),
        {},
        r"config.toml is not a model \(it is a file of the run .*\): pass a run directory",
    ),
    "any file": (lambda f: __file__, MNIST, r"test_evaluation_subject.py is not a model: pass a run directory"),
    "no weights": (lambda f: "compact", MNIST, "compact is an architecture without weights"),
    "not a run": (str, MNIST, "must be a run directory of `gradreg train`; got a folder without config.toml"),
    "no epoch yet": (started, {}, "has not finished an epoch yet"),
    "no file": (lambda f: str(f / "no.safetensors"), MNIST, "no.safetensors does not exist"),
    "no architecture": (weights, MNIST, r"so pass --architecture \(for example compact\)"),
    "no data": (
        weights,
        {"architecture": "small"},
        "does not name its data set, so pass --data",
    ),
    "unknown data": (weights, {"architecture": "small", "data": "minst"}, "There is no data set 'minst'"),
    "unknown network": (weights, {"architecture": "smal", **MNIST}, "did you mean 'small'"),
    "wrong weights": (
        weights,
        {"architecture": "small", **MNIST},
        "does not fit: it lacks .* check --architecture small",
    ),
    "other shapes": (
        of_another_shape,
        {"architecture": "small", **MNIST},
        r"must be float32 of shape \(.*; got float32 of",
    ),
    "damaged": (cut, {"architecture": "small", **MNIST}, "cannot be read as safetensors"),
    "nothing": (lambda f: "", MNIST, "model must be the name or the path of a model; got ''"),
    "an option of a run": (started, {"options": {"activation": "gelu"}}, r"options \(--set\) must not be given with"),
    "a key of a run": (started, {"key": "ema"}, r"key \(--key\) must not be given with .*, since its recipe says"),
    "a key of a name": (
        lambda f: "small",
        {"key": "ema", **MNIST},
        "must not be given with small, since it is no weights",
    ),
    "module": (lambda f: "no_such_module:net", MNIST, "'no_such_module' was found neither"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_opened_is_an_error_of_one_sentence(kind: str, tmp_path: Path) -> None:
    make, options, sentence = BAD[kind]
    with pytest.raises(GradregError, match=sentence) as caught:
        open_model(make(tmp_path), **options)
    assert "\n" not in str(caught.value)


def digits_of(folder: Path, classes: int, side: int, channels: int) -> str:
    """A data set of image files."""
    from PIL import Image

    for place in ("train", "val"):
        for label in range(classes):
            (folder / place / str(label)).mkdir(parents=True)
            Image.new("RGB" if channels == 3 else "L", (side, side)).save(folder / place / str(label) / "a.png")
    return f"folder:{folder}"


def test_a_run_on_other_data_than_its_own(run: Path, tmp_path: Path) -> None:
    """Colour images for a network of grey ones."""
    with pytest.raises(GradregError, match=r"must accept images of folder:.*, of shape \(3, 224, 224\); got an error"):
        open_model(str(run), digits_of(tmp_path / "colours", 10, 32, 3))


def test_a_network_of_another_number_of_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evaluated_narrow.py").write_text(
        "from torch import nn\ndef net(classes): return nn.Sequential(nn.Flatten(), nn.Linear(784, 7))\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GradregError, match="The model has 7 classes and mnist5k has 10"):
        open_model("evaluated_narrow:net", "mnist5k")
