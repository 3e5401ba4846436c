"""A file runs no code unless the caller says so; what a user types is the user's own."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import gradreg
from commands import status
from gradreg.config import toml
from gradreg.errors import ConfigError, TrustError
from gradreg.runs import open_model, recipes
from gradreg.runs.directory import RunDirectory
from gradreg.runs.trust import check_trusted
from tiny_networks import tiny_run

STRANGERS = """
from pathlib import Path
from torch import nn
Path("it-ran").touch()

def net(classes, **options):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))
"""
HUB = {"name": "torch.hub:load", "repo_or_dir": "HERE", "model": "net", "source": "local", "classes": 10}
MODULE = {"name": "strangers.nets:net", "classes": 10}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory that a stranger filled: a package, a hubconf.py, and a run that names them."""
    (tmp_path / "strangers").mkdir()
    (tmp_path / "strangers" / "__init__.py").touch()
    (tmp_path / "strangers" / "nets.py").write_text(STRANGERS)
    (tmp_path / "hubconf.py").write_text(STRANGERS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("strangers", "hubconf")]:
        del sys.modules[name]


def a_run(model: dict[str, Any], folder: Path) -> str:
    """A finished run whose config.toml describes that model."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    table = {key: str(folder) if value == "HERE" else value for key, value in model.items()}
    run = RunDirectory(folder / "run")
    run.start({"data": "mnist5k", "model": table, "objective": {"name": "undefended"}, "epochs": 1})
    row = {"epoch": 1, "hours": 0.1, "held_out": 10, "probed": 0, "clean": 0.5, "best": True, "images_per_second": 1.0}
    run.add_metrics(row)
    for name in ("best", "last"):
        run.save_weights(name, net.state_dict(), row)
    return str(run.folder)


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "evaluate": lambda run: ["evaluate", run, "--images", "2"],
    "diagnose": lambda run: ["diagnose", run, "--images", "2"],
    "inspect": lambda run: ["inspect", "0", "--model", run],
    "train --resume": lambda run: ["train", "--run", run, "--resume"],
    "train a recipe": lambda run: ["train", f"{run}/config.toml", "--run", "new"],
    "ship": lambda run: ["ship", run, "--name", "x", "--evaluation", f"{run}/evaluation", "--to", "shelf"],
    "weights": lambda run: ["evaluate", f"{run}/last.safetensors", "--images", "2"],
}


@pytest.mark.parametrize("model", [HUB, MODULE], ids=["torch.hub", "module"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_the_code_that_a_run_names(
    command: str, model: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(COMMANDS[command](a_run(model, here))) == 2
    said = capsys.readouterr().err
    assert model["name"] in said
    package = model["name"].partition(":")[0]
    if command != "ship":  # nobody's own code is shipped, trusted or not
        assert f"which is run only if you trust it: pass --trust {package} (in Python trust='{package}')" in said
    assert said.count("\n") == 1
    assert not (here / "it-ran").exists()


@pytest.mark.parametrize("trust", [True, "strangers", "strangers.nets", ("other", "strangers")])
def test_what_is_trusted_is_imported(trust: Any, here: Path) -> None:
    run = a_run(MODULE, here)
    assert gradreg.load(run, trust=trust)(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    assert (here / "it-ran").exists()


@pytest.mark.parametrize("trust", [False, (), "stranger", "strangers.net", "strangers.nets.deeper", "torch"])
def test_trust_in_another_package_is_none_in_this_one(trust: Any, here: Path) -> None:
    with pytest.raises(TrustError, match=r"names code to import, 'strangers\.nets:net'"):
        gradreg.load(a_run(MODULE, here), trust=trust)
    assert not (here / "it-ran").exists()


@pytest.mark.parametrize("trust", ["a b", "runs/x", "", ["ok", 3]])
def test_trust_that_names_no_package_is_refused(trust: Any, here: Path) -> None:
    with pytest.raises(ConfigError, match="trust must be True, False or names of packages"):
        gradreg.load(a_run(MODULE, here), trust=trust)


@pytest.mark.parametrize(
    "trusting", [["--trust"], ["--trust", "strangers"], ["--trust=strangers"], ["--trust", "x,strangers"]]
)
@pytest.mark.parametrize("first", [True, False])
def test_the_option_takes_a_package_or_nothing(
    trusting: list[str], first: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["diagnose", a_run(MODULE, here), "--images", "2"]
    status([words[0], *trusting, *words[1:]] if first else [*words, *trusting])
    assert (here / "it-ran").exists(), capsys.readouterr().err


def test_what_a_user_types_needs_no_trust(here: Path) -> None:
    """As the model, as --architecture, as --set model.name, and in Python."""
    weights = {"1.weight": torch.zeros(10, 784), "1.bias": torch.zeros(10)}
    save_file(weights, here / "w.safetensors")
    assert open_model("strangers.nets:net", "mnist5k").model is not None
    assert open_model("w.safetensors", "mnist5k", architecture="strangers.nets:net").model is not None
    assert gradreg.build("strangers.nets:net", classes=10) is not None
    (here / "mine.toml").write_text(toml.dumps({"data": "mnist5k", "model": {"name": "torch.hub:load"}}))
    for settings in (["model.name=strangers.nets:net"], ["model={name='strangers.nets:net'}"]):
        assert recipes.config("mine.toml", settings).model["name"] == "strangers.nets:net"
    with pytest.raises(TrustError, match=r"The recipe mine\.toml names code to import, 'torch\.hub:load'"):
        recipes.config("mine.toml", ["epochs=3"])
    assert recipes.config("mine.toml", trust="torch.hub").model["name"] == "torch.hub:load"


def test_shipped_networks_and_built_in_models_need_no_trust(here: Path) -> None:
    assert gradreg.load("cifar10-l2") is not None
    assert gradreg.load(tiny_run(here / "plain")) is not None


ELSEWHERE: dict[str, dict[str, Any]] = {
    "a pickle": {"name": "timm:resnet18", "checkpoint_path": "evil.pth"},
    "a hub of anybody's": {"name": "timm:hf-hub:stranger/net"},
    "a folder": {"name": "timm:local-dir:/tmp/net"},
    "an address": {"name": "timm:resnet18", "pretrained": True, "pretrained_cfg": {"url": "http://far/evil.pth"}},
    "an overlay": {"name": "timm:resnet18", "pretrained_cfg_overlay": {"file": "evil.pth"}},
    "a cache": {"name": "timm:resnet18", "cache_dir": "/tmp/evil"},
    "a path as weights": {"name": "torchvision:resnet18", "weights": "../evil.pth"},
    "a path in a list": {"name": "torchvision:resnet18", "layers": ["evil.pth"]},
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_a_file_cannot_make_a_library_load_from_elsewhere(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ELSEWHERE[kind]
    library = model["name"].partition(":")[0]
    with pytest.raises(TrustError, match=re.escape(f"pass --trust {library} (in Python trust='{library}')")):
        check_trusted(model, "config.toml", False)
    check_trusted(model, "config.toml", library)
    check_trusted(model, "config.toml", True)


@pytest.mark.parametrize(
    "model",
    [
        {"name": "timm:vit_tiny_patch16_224", "img_size": [32, 32], "drop_rate": 0.1, "activation": "gelu"},
        {"name": "timm:resnet18.a1_in1k", "pretrained": True},
        {"name": "torchvision:resnet18", "weights": "IMAGENET1K_V1", "zero_init_residual": True},
        {"name": "torchvision:resnet18", "weights": "ResNet18_Weights.DEFAULT"},
    ],
)  # fmt: skip
def test_a_librarys_own_models_need_no_trust(model: dict[str, Any]) -> None:
    check_trusted(model, "config.toml", False)


def test_the_name_that_is_typed_does_not_clear_options_of_the_file() -> None:
    model = {"name": "timm:resnet18", "checkpoint_path": "evil.pth"}
    with pytest.raises(TrustError, match=r"checkpoint_path = 'evil\.pth'"):
        check_trusted(model, "r.toml", False, ["model.name=timm:resnet18"])
    check_trusted(model, "r.toml", False, ["model.name=timm:resnet18", "model.checkpoint_path=evil.pth"])


def test_the_library_is_not_even_called(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=called.append))
    with pytest.raises(TrustError):
        gradreg.load(a_run({**ELSEWHERE["a pickle"], "classes": 10}, here))
    assert called == []
