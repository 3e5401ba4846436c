"""Checkpoints as other people save them: bare or nested, wrapped or not, of any age; and what is refused in them."""

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import gradreg
from commands import status
from gradreg.errors import GradregError
from gradreg.runs import files
from gradreg.runs.opening import open_model

Weights = dict[str, Tensor]


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 26 * 26, 10))


class Lightning(nn.Module):
    """A network as an attribute, beside the weights of a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.register_buffer("class_weights", torch.ones(10))


def prefixed(prefix: str) -> Weights:
    return {prefix + name: value for name, value in network().state_dict().items()}


def without_counts() -> Weights:
    return {name: value for name, value in network().state_dict().items() if "num_batches" not in name}


SAVED: dict[str, Callable[[], Any]] = {
    "bare": lambda: network().state_dict(),
    "data parallel": lambda: nn.DataParallel(network()).state_dict(),
    "compiled": lambda: prefixed("_orig_mod."),
    "averaged": lambda: AveragedModel(network()).state_dict(),
    "an attribute": lambda: prefixed("model."),
    "another attribute": lambda: prefixed("net."),
    "all of them": lambda: prefixed("model.module._orig_mod.net."),
    "a compiled part": lambda: {n.replace("4.", "4._orig_mod."): v for n, v in network().state_dict().items()},
    "before counts": without_counts,
    "state_dict": lambda: {"state_dict": network().state_dict(), "epoch": 3, "best": torch.tensor(0.9)},
    "model": lambda: {"model": prefixed("module."), "optimizer": torch.optim.SGD(network().parameters()).state_dict()},
    "model_state_dict": lambda: {"model_state_dict": network().state_dict(), "loss": 0.1},
    "ema": lambda: {"ema": prefixed("module."), "args": {"lr": 0.1}},
    "nested twice": lambda: {"model": {"state_dict": network().state_dict()}},
}


@pytest.mark.parametrize("kind", SAVED)
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt"])
def test_weights_are_found_wherever_they_are(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"plain{suffix}"
    torch.save(SAVED[kind](), path)
    loaded = gradreg.load(path, architecture=network(seed=1))
    assert not loaded.training
    for name, value in network().state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


class Wrapping(nn.Module):
    """A network as `model`: alone, beside a constant, or beside other weights."""

    def __init__(self, **beside: nn.Module | torch.Tensor) -> None:
        super().__init__()
        self.model = network(seed=1)
        for name, part in beside.items():
            self.register_buffer(name, part) if isinstance(part, torch.Tensor) else self.add_module(name, part)


@pytest.mark.parametrize("beside", [{}, {"mean": torch.zeros(3)}, {"flat": nn.Flatten()}], ids=["", "buffer", "layer"])
def test_weights_go_into_the_model_of_a_wrapper(beside: Any, tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "plain.pt")
    loaded = gradreg.load(tmp_path / "plain.pt", architecture=Wrapping(**beside))
    assert isinstance(loaded, nn.Module)
    for name, value in network().state_dict().items():
        assert torch.equal(loaded.state_dict()[f"model.{name}"], value), name


@pytest.mark.parametrize("prefix", ["", "net."])
def test_no_weights_beside_a_model_stay_random(prefix: str, tmp_path: Path) -> None:
    torch.save(prefixed(prefix), tmp_path / "part.pt")
    with pytest.raises(GradregError, match="does not fit: it lacks"):
        gradreg.load(tmp_path / "part.pt", architecture=Wrapping(net=network(), head=nn.Linear(10, 10)))


def test_a_file_of_before_torch_had_archives(tmp_path: Path) -> None:
    torch.save(prefixed("module."), tmp_path / "old.pth.tar", _use_new_zipfile_serialization=False)
    loaded = gradreg.load(tmp_path / "old.pth.tar", architecture=network(seed=1))
    assert torch.equal(loaded.state_dict()["4.weight"], network().state_dict()["4.weight"])


def test_several_sets_of_weights_are_a_question(tmp_path: Path) -> None:
    path = tmp_path / "both.ckpt"
    ours, theirs = network(0), network(1)
    torch.save({"state_dict": ours.state_dict(), "state_dict_ema": theirs.state_dict()}, path)
    with pytest.raises(GradregError, match=r"several sets of weights \(state_dict, state_dict_ema\): pass one as key"):
        gradreg.load(path, architecture=network(2))
    for key, meant in (("state_dict", ours), ("state_dict_ema", theirs)):
        loaded = gradreg.load(path, architecture=network(2), key=key)
        assert torch.equal(loaded.state_dict()["4.weight"], meant.state_dict()["4.weight"])


def test_a_part_of_what_was_saved(tmp_path: Path) -> None:
    """A Lightning module has more than the network; the rest is named, and a key leaves it out."""
    path = tmp_path / "lightning.ckpt"
    torch.save({"state_dict": Lightning().state_dict(), "pytorch-lightning_version": "2.5"}, path)
    with pytest.raises(GradregError, match="also holds 'class_weights'"):
        gradreg.load(path, architecture=network(1))
    loaded = gradreg.load(path, architecture=network(1), key="state_dict.net")
    assert torch.equal(loaded.state_dict()["4.weight"], network().state_dict()["4.weight"])
    with pytest.raises(GradregError, match=r"holds no weights under 'state_dict.student'; it has state_dict, "):
        gradreg.load(path, architecture=network(1), key="state_dict.student")


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("the file's code has run",)


def deep() -> bytes:
    """A key of tuples inside each other, whose hash takes 2^60 steps."""
    body = b"\x80\x02}q\x00)q\x01" + b"".join(b"h\x01h\x01\x86q\x01" for _ in range(60))
    return body + b"K\x01s."


def archive(path: Path, pickled: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickled)
        file.writestr("archive/version", "3\n")


def flipped(path: Path) -> None:
    """One bit of a weight: torch's own reader does not notice."""
    torch.save(network().state_dict(), path)
    content = bytearray(path.read_bytes())
    values = network().state_dict()["4.weight"].numpy().tobytes()
    content[content.index(values) + 1000] ^= 1
    path.write_bytes(bytes(content))


def in_itself(path: Path) -> None:
    content: dict[str, Any] = {}
    content["model"] = content
    torch.save(content, path)


def beginning(path: Path) -> None:
    torch.save(network().state_dict(), path)
    path.write_bytes(path.read_bytes()[:300])


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "code": (lambda p: torch.save({"state_dict": Payload()}, p), "holds an object of print, which is code"),
    "a whole module": (lambda p: torch.save(network(), p), "holds an object of torch.nn.modules.container.Sequential"),
    "a plain pickle": (lambda p: p.write_bytes(pickle.dumps({"a": 1})), "cannot be read as a file of torch.save"),
    "nothing": (lambda p: p.write_bytes(b""), "cannot be read as a file of torch.save"),
    "words": (lambda p: p.write_text("version https://git-lfs"), "neither a zip archive nor a pickle"),
    "a list": (lambda p: torch.save([1, 2], p), "must hold a table of weights"),
    "no weights": (lambda p: torch.save({"epoch": 3, "lr": 0.1}, p), "must hold weights, bare or under one of"),
    "other names": (lambda p: torch.save({"a": torch.ones(2)}, p), "does not fit: it lacks"),
    "no tensor": (lambda p: torch.save({"state_dict": {"a": torch.ones(2), "b": 3}}, p), "got a int under 'b'"),
    "8-bit floats": (
        lambda p: torch.save(
            {name: value.to(torch.float8_e4m3fn) for name, value in network().state_dict().items()}, p
        ),
        "must be floats of 16 bits or more; got torch.float8_e4m3fn",
    ),
    "sparse": (lambda p: torch.save({"a": torch.eye(2).to_sparse()}, p), "tensors must be dense"),
    "no values": (lambda p: torch.save({"a": torch.ones(2, device="meta")}, p), "tensors must be dense"),
    "endless": (lambda p: archive(p, deep()), "at most 20 tuples inside each other"),
    "in itself": (in_itself, r"weights at most 5 tables deep; got model\.model\."),
    "its beginning": (beginning, "an archive without its end, so copy or download it again"),
    "one bit": (flipped, r"the checksum of .*data/.* differs"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_in_one_sentence(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, sentence = REFUSED[kind]
    path = tmp_path / "bad.pt"
    make(path)
    with pytest.raises(GradregError, match=sentence) as caught:
        gradreg.load(path, architecture=network(1))
    assert "\n" not in str(caught.value)
    assert "code has run" not in capsys.readouterr().out


def test_a_tensor_that_is_larger_than_its_values(tmp_path: Path) -> None:
    """torch would fill it up with whatever lies in memory."""
    torch.save({"a": torch.arange(64.0)}, tmp_path / "whole.pt")
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole, zipfile.ZipFile(tmp_path / "cut.pt", "w") as cut:
        for part in whole.infolist():
            content = whole.read(part)
            cut.writestr(part, content[:128] if len(content) == 256 else content)
    with pytest.raises(GradregError, match=r"cannot be read as a file of torch.save"):
        files.read(tmp_path / "cut.pt")


def test_a_checkpoint_by_name_and_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = gradreg.build("small", classes=10, channels=1).eval()
    path = tmp_path / "plain.pt"
    torch.save({"state_dict": {f"module.{n}": v for n, v in model.state_dict().items()}}, path)
    opened = open_model(str(path), "mnist5k", architecture="small")
    assert opened.subject.name == "plain"
    x = opened.data.test.floats([0, 1])
    loaded = gradreg.load(path, architecture="small", options={"classes": 10, "channels": 1})
    with torch.no_grad():
        assert torch.equal(opened.model(x), model(x))
        assert torch.equal(loaded(x), model(x))
    assert status(["diagnose", str(path), "--data", "mnist5k", "--architecture", "small", "--images", "4"]) in (0, 1)
    assert "plain" in capsys.readouterr().out
    with pytest.raises(GradregError, match="without an architecture, so pass architecture="):
        gradreg.load(path)
