"""Images that are passed in Python have no name of their own: what their pixels are known by tells them apart."""

import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gradreg
from evaluation_toys import SHAPE, linear
from gradreg.errors import ConfigError, DataError, ModelError, StorageError
from gradreg.evaluation import Evaluation, evaluate, load
from gradreg.report.comparison import Comparison
from gradreg.report.tables.difference import Difference
from gradreg.report.tables.formats import render
from gradreg.report.tables.layout import Cell, Column, Row, Table
from gradreg.report.tables.paired import paired

QUICK: dict[str, Any] = {"threat": "l2", "attacks": "deepfool", "diagnosis": False}


def pictures(seed: int) -> tuple[Tensor, Tensor]:
    x = 0.3 + 0.4 * torch.rand(12, *SHAPE, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(12) % 4


def named(seed: int, name: str, **more: Any) -> Evaluation:
    return evaluate(linear(), pictures(seed), name=name, **QUICK | more)


def test_other_images_with_the_same_labels_are_not_compared_one_by_one(tmp_path: Path) -> None:
    one, same, other = named(1, "one"), named(1, "same"), named(2, "other")
    assert len(one.data.pixels) == 12
    one.save(tmp_path)
    assert load(tmp_path).data.pixels == one.data.pixels
    assert Difference.of([one, same]).changes[0].n == 12
    with pytest.raises(DataError, match="same images; got 12 of 12 with other pixels"):
        Difference.of([one, other])
    assert [row.cells[2].value is not None for row in paired(Comparison.of([one, same])).rows] == [True]
    assert not paired(Comparison.of([one, other])).rows
    assert not Comparison.of([one, same]).notes
    assert "other images of images than one" in Comparison.of([one, other]).notes[0]


@pytest.mark.parametrize("shape", [(48,), (6, 8), (2, 3, 2, 4)])
def test_vectors_and_volumes_are_reported_without_pictures(shape: tuple[int, ...], tmp_path: Path) -> None:
    x, y = pictures(1)
    flat = evaluate(linear(), (x.view(12, *shape), y), **QUICK)
    torch.testing.assert_close(flat.threats["l2"].attacked.distance, named(1, "one").threats["l2"].attacked.distance)
    flat.save(tmp_path / "flat")
    gradreg.report([load(tmp_path / "flat")], tmp_path / "report.html")
    assert "data:image" not in (tmp_path / "report.html").read_text()


def test_files_of_before_are_compared_by_position() -> None:
    one, other = named(1, "one"), named(2, "other")
    old = replace(other, data=replace(other.data, pixels=()))
    assert Difference.of([one, old]).changes[0].n == 12
    assert not Comparison.of([one, old]).notes
    with pytest.raises(DataError, match="a fingerprint for each of 12 images; got 3"):
        replace(other, data=replace(other.data, pixels=(1, 2, 3))).save("never")


def test_a_difference_without_a_common_threat_says_so() -> None:
    found = Difference.of([named(1, "one"), named(1, "two", threat="linf")])
    assert found.sentences()[0] == "Nothing changed on 12 images, clean; they have no threat in common."


def test_signs_that_steer_a_terminal_do_not_reach_it() -> None:
    name = "a\x1b]0;owned\x07\x9b31m\u202eb"
    table = Table("t", "T", "c", (Column("h", "d"),), (Row(name, (Cell("1", 1.0, name),)),))
    for format in ("md", "tex", "csv", "json"):
        text = render([table], format, [name])
        assert all(sign.isprintable() or sign == "\n" for sign in text), format
    assert json.loads(render([table], "json"))["tables"][0]["rows"][0]["name"] == name


def test_a_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    found, shape = named(1, "one"), (3, 200, 200)
    record = found.threats["l2"]
    assert record.gallery is not None
    large = torch.zeros(len(record.gallery.rows), *shape)
    gallery = replace(record.gallery, clean=large, adversarial=large, segment=None)
    found = replace(found, data=replace(found.data, shape=shape), threats={"l2": replace(record, gallery=gallery)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StorageError, match=r"gallery.safetensors could not be written"):
            found.save(tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_bytes_of_0_and_1_are_refused() -> None:
    x, y = pictures(1)
    with pytest.raises(DataError, match="whole numbers from 0 to 1, of which 1 would be nearly black"):
        evaluate(linear(), ((x > 0.5).byte().numpy(), y.numpy()), **QUICK)
    with pytest.raises(DataError, match="nearly black"):
        evaluate(linear(), [((x > 0.5).byte(), y)], **QUICK)
    assert len(evaluate(linear(), ((x > 0.5).float(), y), **QUICK)) == 12


@torch.inference_mode()
def test_inference_mode_is_named() -> None:
    x, y = pictures(1)
    with pytest.raises(ModelError, match=r"under torch.inference_mode\(\)"):
        gradreg.attack(linear(), x, y)
    with pytest.raises(ConfigError, match=r"torch.inference_mode\(\) disables"):
        gradreg.regularized_loss(linear(), x, y, lam=0.1)
