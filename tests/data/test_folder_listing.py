"""What an image folder holds: nothing is passed over without a word, and no link leads astray."""

import os
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from gradreg.data import ImageFolder, load
from gradreg.errors import DataError, GradregWarning


def train(root: Path) -> ImageFolder:
    found = load(f"folder:{root}").train
    assert isinstance(found, ImageFolder)
    return found


def pictures(root: Path, *places: str) -> Path:
    for place in places:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("RGB", (12, 12), "grey").save(root / place, "JPEG")
    return root


def test_what_is_passed_over_is_counted(tmp_path: Path) -> None:
    root = pictures(tmp_path, "train/a/0.jpg", "train/a/1.JFIF", "train/a/2.jpe", "val/a/0.jpg")
    for name in ("README.md", "Thumbs.db", ".DS_Store"):
        (root / "train/a" / name).write_text("no image")
    assert len(train(root)) == 3
    pictures(root, "train/a/3.heic", "train/a/below/4.avif")
    with pytest.warns(GradregWarning, match=r"^2 files below .*train are passed over, such as .*train/a/3\.heic: im"):
        assert len(train(root)) == 3


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    root = pictures(tmp_path, "train/a/0.jpg", "val/a/0.jpg", "elsewhere/1.jpg", "elsewhere/below/2.jpg")
    (root / "train/a/more").symlink_to("../../elsewhere")
    assert [Path(path).name for path in train(root).paths] == ["0.jpg", "1.jpg", "2.jpg"]
    assert train(root).floats().shape[0] == 3


@pytest.mark.parametrize("target", [".", "..", "../.."])
def test_a_link_to_a_folder_around_it_is_refused(target: str, tmp_path: Path) -> None:
    root = pictures(tmp_path, "train/a/0.jpg", "train/b/0.jpg", "val/a/0.jpg", "val/b/0.jpg")
    (root / "train/a/round").symlink_to(target)
    with pytest.raises(DataError, match=r"train/a/round must not be a link to a folder that it lies in"):
        load(f"folder:{root}")


def test_links_that_lead_to_each_other_are_refused(tmp_path: Path) -> None:
    root = pictures(tmp_path, "train/a/0.jpg", "val/a/0.jpg", "one/1.jpg", "two/2.jpg")
    for here, there in (("train/a/x", "one"), ("one/to", "two"), ("two/to", "one")):
        (root / here).symlink_to(root / there)
    with pytest.raises(DataError, match=r"must not be a link to a folder that it lies in"):
        load(f"folder:{root}")


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, scan = pictures(tmp_path, "train/a/0.jpg", "train/a/shut/1.jpg", "val/a/0.jpg"), os.scandir

    def shut(path: Any) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", shut)
    with pytest.raises(DataError, match=r"train/a/shut cannot be read \(Permission denied\)"):
        load(f"folder:{root}")
