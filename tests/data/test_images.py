from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradreg.data import DataSet, Images
from gradreg.errors import DataError

CLASSES = ("cat", "dog", "emu")


def make(n: int = 12, classes: tuple[str, ...] = CLASSES) -> Images:
    pixels = torch.arange(n * 3 * 4 * 5).remainder(256).to(torch.uint8).view(n, 3, 4, 5)
    return Images(pixels, torch.arange(n) % len(classes), classes, source="toy")


def test_floats_are_exact_fractions_of_255() -> None:
    images = make()
    assert len(images) == 12
    assert torch.equal(images.floats(), images.pixels.double().div(255).float())
    assert torch.equal(images.floats([3, 1]), images.floats()[[3, 1]])


@pytest.mark.parametrize("index", [slice(2, 4), [2, 3], torch.tensor([2, 3]), range(2, 4)])
def test_subset_takes_any_kind_of_index(index: Tensor) -> None:
    part = make().subset(index)
    assert torch.equal(part.pixels, make().pixels[2:4])
    assert part.labels.tolist() == [2, 0]
    assert part.classes == CLASSES


def test_split_parts_the_images_by_seed_and_leaves_the_global_generator_alone() -> None:
    images, before = make(), torch.get_rng_state()
    kept, held = images.split(5, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert (len(kept), len(held)) == (7, 5)
    together = torch.cat([kept.pixels, held.pixels]).flatten(1).tolist()
    assert sorted(together) == sorted(images.pixels.flatten(1).tolist())
    assert torch.equal(images.split(5, seed=1)[1].pixels, held.pixels)
    assert not torch.equal(images.split(5, seed=2)[1].pixels, held.pixels)


@pytest.mark.parametrize("n", [0, 12, -1])
def test_split_refuses_to_leave_a_part_empty(n: int) -> None:
    with pytest.raises(DataError, match=f"held-out images of toy, must be from 1 to 11; got {n}"):
        make().split(n, seed=0)


BYTES = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (
            BYTES.float(),
            torch.zeros(2).long(),
            r"src: pixels .* got a Tensor of torch.float32 and shape \(2, 1, 4, 4\)",
        ),
        (BYTES[0], torch.zeros(2).long(), r"src: pixels .* got .* torch.uint8 and shape \(1, 4, 4\)"),
        (BYTES, torch.zeros(2), r"src: labels .* got .* torch.float32 and shape \(2,\)"),
        (BYTES, torch.zeros(2, 1).long(), r"src: labels .* got .* torch.int64 and shape \(2, 1\)"),
        (BYTES, torch.zeros(3).long(), "src must have one label per image; got 3 for 2 images"),
        (BYTES[:0], torch.zeros(0).long(), "src holds no images"),
        (BYTES, torch.tensor([0, 3]), "src: labels must lie between 0 and 2 for 3 classes; got 3 for image 1"),
        (BYTES, torch.tensor([-1, 3]), "src: labels must lie between 0 and 2 for 3 classes; got -1 for image 0"),
    ],
)
def test_wrong_images_are_named_with_their_source(pixels: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Images(pixels, labels, CLASSES, source="src")


def test_both_parts_of_a_set_have_the_same_classes() -> None:
    assert DataSet("toy", make(), make()).classes == CLASSES
    with pytest.raises(DataError, match="parts of toy have different classes"):
        DataSet("toy", make(), make(classes=("a", "b")))
