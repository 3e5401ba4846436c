"""Data of one's own on the command line: arrays in an .npz file, and a flat folder with a table of labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from commands import status
from gradreg.data import ImageFolder, Images, load
from gradreg.errors import GradregError

BYTES = np.random.default_rng(0).integers(256, size=(20, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(20) % 4


def saved(folder: Path, **arrays: Any) -> str:
    np.savez_compressed(folder / "mine.npz", **arrays)
    return f"npz:{folder / 'mine.npz'}"


def test_two_parts_as_keras_and_medmnist_save_them(tmp_path: Path) -> None:
    found = load(saved(tmp_path, x_train=BYTES, y_train=LABELS, x_test=BYTES[:4], y_test=LABELS[:4]))
    assert isinstance(found.train, Images)
    assert isinstance(found.test, Images)
    assert torch.equal(found.train.pixels, torch.from_numpy(BYTES).permute(0, 3, 1, 2))
    assert found.test.labels.tolist() == [0, 1, 2, 3]
    assert found.classes == ("0", "1", "2", "3")
    grey = {"train_images": BYTES[..., 0], "train_labels": LABELS[:, None], "test_images": BYTES[:3, ..., 0]}
    medical = load(saved(tmp_path, **grey, test_labels=LABELS[:3, None]))
    assert isinstance(medical.test, Images)
    assert medical.test.pixels.shape == (3, 1, 6, 5)
    assert len(medical.classes) == 4


@pytest.mark.parametrize("pixels", [BYTES, BYTES.transpose(0, 3, 1, 2), (BYTES / 255).astype(np.float32), BYTES / 255])
def test_one_part_is_split_always_the_same(pixels: Any, tmp_path: Path) -> None:
    one, two = (load(saved(tmp_path, images=pixels, labels=LABELS)) for _ in range(2))
    assert isinstance(one.test, Images)
    assert isinstance(one.train, Images)
    assert isinstance(two.test, Images)
    assert (len(one.train), len(one.test)) == (16, 4)
    assert torch.equal(one.test.pixels, two.test.pixels)
    together = torch.cat([one.train.pixels, one.test.pixels]).flatten(1).tolist()
    expected = torch.from_numpy(BYTES).permute(0, 3, 1, 2).flatten(1).tolist()
    assert sorted(together) == sorted(expected)


def broken(folder: Path) -> str:
    (folder / "mine.npz").write_bytes(b"PK\x03\x04 and nothing else")
    return f"npz:{folder / 'mine.npz'}"


BAD: dict[str, tuple[Callable[[Path], str], str]] = {
    "names": (lambda f: saved(f, a=BYTES), "must hold arrays named x_train, y_train, .*; got a"),
    "objects": (lambda f: saved(f, x=BYTES, y=np.array([{}] * 20)), "y holds object, not numbers"),
    "words": (lambda f: saved(f, x=BYTES, y=np.array(["a"] * 20)), "not numbers"),
    "soft": (lambda f: saved(f, x=BYTES, y=np.random.rand(20)), "must hold whole numbers, one per image"),
    "negative": (lambda f: saved(f, x=BYTES, y=LABELS - 1), "labels must lie between"),
    "huge": (lambda f: saved(f, x=BYTES, y=LABELS + 10**9), "the largest label of y must be from 0 to 999999"),
    "between": (lambda f: saved(f, x=np.random.rand(20, 4, 4, 3), y=LABELS), "bytes, or bytes over 255; got floats"),
    "beyond": (lambda f: saved(f, x=BYTES.astype(int) + 9, y=LABELS), "pixels from 0 to 255; got"),
    "float bytes": (
        lambda f: saved(f, x=BYTES.astype(np.float32), y=LABELS),
        "floats from 0 to 1; got floats from 0 to 255",
    ),
    "signed": (lambda f: saved(f, x=BYTES / 127.5 - 1, y=LABELS), "floats from 0 to 1; got floats from -1 to 1"),
    "ones": (lambda f: saved(f, x=BYTES // 128, y=LABELS), "got whole numbers from 0 to 1, .*: multiply them by 255"),
    "shape": (lambda f: saved(f, x=BYTES[0], y=LABELS[:1]), "must have one label|five images per test image|must be"),
    "fewer": (lambda f: saved(f, x=BYTES[:7], y=LABELS), "must have one label per image"),
    "damaged": (broken, "cannot be read as an .npz file"),
    "none": (lambda f: f"npz:{f / 'no.npz'}", "cannot be read"),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", BAD)
def test_anything_else_is_one_sentence(kind: str, tmp_path: Path) -> None:
    make, sentence = BAD[kind]
    with pytest.raises(GradregError, match=sentence) as caught:
        load(make(tmp_path))
    assert "\n" not in str(caught.value)


def photos(folder: Path, table: str, suffix: str = ".png", name: str = "labels.csv") -> str:
    folder.mkdir(exist_ok=True)
    for number in range(10):
        Image.fromarray(BYTES[number]).save(folder / f"{number}{suffix}")
    (folder / name).write_text(table)
    return f"folder:{folder}"


def rows(form: str, count: int = 10) -> str:
    return "".join(
        form.format(i=i, label="dog" if i % 2 else "cat", part="test" if i > 6 else "train") for i in range(count)
    )


def test_a_table_of_labels(tmp_path: Path) -> None:
    found = load(photos(tmp_path, "file_name,label\n" + rows("{i}.png,{label}\n")))
    assert isinstance(found.train, ImageFolder)
    assert found.classes == ("cat", "dog")
    assert (len(found.train), len(found.test)) == (8, 2)
    for part in (found.train, found.test):
        assert isinstance(part, ImageFolder)
        for path, label in zip(part.paths, part.labels.tolist(), strict=True):
            assert label == int(Path(path).stem) % 2


def test_a_table_that_says_which_images_are_tests(tmp_path: Path) -> None:
    """As Kaggle's: names without an ending, other words for the columns, in any order."""
    found = load(photos(tmp_path, "split,id,breed\n" + rows("{part},{i},{label}\n"), ".jpg", "metadata.csv"))
    assert isinstance(found.test, ImageFolder)
    assert [Path(path).name for path in found.test.paths] == ["7.jpg", "8.jpg", "9.jpg"]
    assert found.test.labels.tolist() == [1, 0, 1]


TABLES = {
    "no column": ("image,price\n0.png,3\n", "must have a column file_name and a column label; got image, price"),
    "outside": ("file,label\n../secret.png,1\n", r"must name files inside of .*; got '../secret.png' in line 2"),
    "absolute": ("file,label\n/etc/passwd,1\n", "must name files inside of"),
    "gone": ("file,label\nno.png,1\n", "names 'no.png' in line 2, and there is no such image"),
    "long": (f"file,label\n{'x' * 5000},1\n", "and there is no such image"),
    "cells": ("file,label\n0.png,1,2\n", "must have 2 cells in every line; got 3 in line 2"),
    "empty": ("file,label\n", "one line per image; got 1 lines"),
    "huge cell": (f"file,label\n0.png,1\n1.png,{'a' * 200_000}\n", r"labels\.csv cannot be read as a table .*line 3"),
    "open quote": ('file,label\n0.png,1\n1.png,"1\n2.png,0\n3.png,1\n', "look for a quote that is not closed"),
    "two lines in a cell": ('file,label\n0.png,1\n1.png,"1\n2"\n', r"printable letters .*; got '1\\n2' in line 4"),
    "no letter": ("file,label\n0.png,1\x00\n1.png,0\n", r"got '1\\x00' in line 2"),
    "file of two lines": ('file,label\n"0\n.png",1\n1.png,0\n', r"printable letters; got '0\\n\.png' in line 3"),
    "no label": ("file,label\n0.png,1\n1.png, \n", "got '' in line 3: leave out images without one"),
    "file twice": ("file,label\n0.png,1\n1.png,0\n\n./0,0\n", r"name a file once; got .*0\.png in lines 2 and 5"),
    "a column twice": ("file,label,label\n0.png,a,b\n1.png,b,a\n", "must name a column once; got 'label' 2 times"),
    "one word": (
        "file,label\n0.png,caf\u00e9\n1.png,cafe\u0301\n",
        r"'cafe\\u0301' and 'caf\\xe9', which are one word",
    ),
    "one number": ("file,label\n0.png,1\n1.png,01\n2.png,0\n", "got '01' and '1', which are one number"),
    "one image": ("file,label\n0.png,1\n", "two or more, one line per image; got 2 lines"),
    "other part": ("file,label,split\n0.png,1,train\n1.png,2,unused\n", "one of train, .*; got 'unused' in line 3"),
    "no part": ("file,label,split\n0.png,1,train\n1.png,2,\n", "in its column 'split'; got '' in line 3"),
    "one part": ("file,label,split\n0.png,1,train\n1.png,2,train\n", "must name training and test images"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_bad_table_is_one_sentence(kind: str, tmp_path: Path) -> None:
    table, sentence = TABLES[kind]
    with pytest.raises(GradregError, match=sentence):
        load(photos(tmp_path, table))


@pytest.mark.parametrize("test", ["test", "Testing", "val", "validation"])
def test_words_for_the_parts(test: str, tmp_path: Path) -> None:
    table = "file,label,split\n" + "".join(f"{i}.png,{i % 2},{'training' if i < 7 else test}\n" for i in range(10))
    found = load(photos(tmp_path, table))
    assert (len(found.train), len(found.test)) == (7, 3)


def test_a_byte_order_mark_is_no_letter(tmp_path: Path) -> None:
    """Excel puts it before UTF-8."""
    assert load(photos(tmp_path, "\ufefffile_name,label\n" + rows("{i}.png,{label}\n"))).classes == ("cat", "dog")


@pytest.mark.parametrize("kind", ["folder:", "npz:"])
def test_a_path_must_follow(kind: str) -> None:
    with pytest.raises(GradregError, match=f"^{kind} must be followed by a path, for example {kind}"):
        load(kind)


def test_a_command_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["data", saved(tmp_path, images=BYTES, labels=LABELS)]) == 0
    assert "16 training and 4 test images, 4 classes" in capsys.readouterr().out
    assert status(["data", photos(tmp_path / "flat", "file,label\n" + rows("{i}.png,{label}\n"))]) == 0
    assert "8 training and 2 test images, 2 classes (cat, dog)" in capsys.readouterr().out
