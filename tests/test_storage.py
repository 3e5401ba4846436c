"""Files that are written whole or not at all."""

from pathlib import Path

import pytest
import torch

from gradreg import DataError, storage


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "file.safetensors"
    storage.write(path, "thing", {"a": torch.ones(2)}, {"n": 1})

    def full(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "save_file", full)
        with pytest.raises(OSError, match="no space"):
            storage.write(path, "thing", {"a": torch.zeros(2)}, {"n": 2})
    tensors, facts = storage.read(path, "thing")
    assert torch.equal(tensors["a"], torch.ones(2))
    assert facts == {"n": 1}
    assert len(list(path.parent.iterdir())) == 1
    with pytest.raises(DataError, match="holds no other thing"):
        storage.read(path, "other thing")
    with pytest.raises(DataError, match="cannot be read"):
        storage.read(tmp_path / "none", "thing")


def test_a_file_is_as_readable_as_others_are(tmp_path: Path) -> None:
    """So that a run can be shared: safetensors itself would keep it from everybody else."""
    storage.write(tmp_path / "mine", "thing", {"a": torch.zeros(2)}, {})
    (tmp_path / "usual").touch()
    assert (tmp_path / "mine").stat().st_mode == (tmp_path / "usual").stat().st_mode
