"""The folder of an evaluation: nothing of somebody else is written over, and a regularity is the evaluation's own."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluation_toys import linear, quick
from gradreg.errors import ConfigError, DataError
from gradreg.evaluation import load

LIGHT: dict[str, Any] = {"attacks": ["deepfool"], "regularity": "local", "smoothing": None, "images": 8}
REGULARITY = ".state/regularity.l2.safetensors"


@pytest.mark.parametrize("name", ["images.csv", "gallery.safetensors", "config.toml"])
def test_files_of_somebody_else_are_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("my,precious,table")
    with pytest.raises(ConfigError, match=f"must hold no {name} of something else; choose another folder"):
        quick(tmp_path, **LIGHT)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "my,precious,table")]


def interrupted(folder: Path, **changes: Any) -> None:
    """As a kill leaves it between the estimate and the bounds."""
    quick(folder, **(LIGHT | changes))
    for name in ("evaluation.json", "images.csv", "gallery.safetensors", ".state/bounds.l2.done.safetensors"):
        (folder / name).unlink(missing_ok=True)


@pytest.fixture
def whole(tmp_path: Path) -> torch.Tensor:
    quick(tmp_path / "whole", **LIGHT)
    return bound(tmp_path / "whole")


def bound(folder: Path) -> torch.Tensor:
    found = load(folder).threats["l2"].bounded
    assert found is not None
    return found.lipschitz_bound


def test_a_regularity_of_another_model_is_refused(whole: torch.Tensor, tmp_path: Path) -> None:
    other = linear()
    with torch.no_grad():
        other[1].weight *= 0.5  # type: ignore[index]
    interrupted(tmp_path / "b", model=other)
    interrupted(tmp_path / "a")
    own = (tmp_path / "a" / REGULARITY).read_bytes()
    shutil.copy(tmp_path / "b" / REGULARITY, tmp_path / "a" / REGULARITY)
    with pytest.raises(DataError, match=r"regularity\.l2\.safetensors is damaged, or of another evaluation: delete it"):
        quick(tmp_path / "a", **LIGHT)
    shutil.copy(tmp_path / "b" / ".state/regularity.l2.done.safetensors", tmp_path / "a" / ".state")
    with pytest.raises(DataError, match="is a part of other work"):
        quick(tmp_path / "a", **LIGHT)
    (tmp_path / "a" / ".state/regularity.l2.done.safetensors").unlink()
    (tmp_path / "a" / REGULARITY).write_bytes(own[:99])  # also one that nobody noted: it is estimated again
    quick(tmp_path / "a", **LIGHT)
    assert torch.equal(bound(tmp_path / "a"), whole)


def test_a_damaged_regularity_is_no_reason_for_no_bounds(whole: torch.Tensor, tmp_path: Path) -> None:
    interrupted(tmp_path / "a")
    path = tmp_path / "a" / REGULARITY
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match="delete it to estimate again"):
        quick(tmp_path / "a", **LIGHT)
    path.unlink()
    quick(tmp_path / "a", **LIGHT)
    assert torch.equal(bound(tmp_path / "a"), whole)
