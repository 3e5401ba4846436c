"""Images and labels as other people's loaders and data sets give them: the same numbers wherever they come from."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import gradreg
from gradreg.bounds.data import gather
from gradreg.data import Images, pairs
from gradreg.data.rows import images_of
from gradreg.data.tensors import Tensors
from gradreg.errors import GradregError

BYTES = torch.randint(256, (12, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
PIXELS, LABELS = BYTES / 255, torch.arange(12) % 3


class Rows:
    """A data set by position, as Hugging Face's and torchvision's are."""

    features: dict[str, Any]

    def __init__(self, row: Callable[[int], Any]) -> None:
        self.row = row

    def __len__(self) -> int:
        return 12

    def __getitem__(self, position: int) -> Any:
        if not 0 <= position < 12:
            raise IndexError(position)
        return self.row(position)


def picture(position: int) -> Image.Image:
    return Image.fromarray(BYTES[position].permute(1, 2, 0).numpy())


def named(x: str, y: str, of: Any = PIXELS) -> list[dict[str, Any]]:
    return [{x: of[start : start + 5], y: LABELS[start : start + 5], "id": "a"} for start in (0, 5, 10)]


DATA: dict[str, Any] = {
    "tensors": (PIXELS, LABELS),
    "arrays": (PIXELS.numpy(), LABELS.numpy()),
    "bytes, channels last": (BYTES.permute(0, 2, 3, 1).numpy(), LABELS.numpy()),
    "a loader": DataLoader(TensorDataset(PIXELS, LABELS), batch_size=5),
    "a data set of torch": TensorDataset(PIXELS, LABELS),
    "image and label": named("image", "label"),
    "pixel_values and labels": named("pixel_values", "labels"),
    "img and fine_label": named("img", "fine_label"),
    "bytes": named("image", "label", BYTES),
    "both": [{**batch, "pixel_values": 9 * batch["image"]} for batch in named("image", "label")],
    "rows of pictures": Rows(lambda i: {"image": picture(i), "label": int(LABELS[i])}),
    "rows of pairs": Rows(lambda i: (picture(i), int(LABELS[i]))),
    "rows of bytes": Rows(lambda i: {"image": BYTES[i], "label": LABELS[i]}),
    "rows of arrays": Rows(lambda i: {"image": BYTES[i].permute(1, 2, 0).numpy(), "label": np.int64(LABELS[i])}),
    "a stream of rows": [{"image": picture(i), "label": int(LABELS[i])} for i in range(12)],
    "a list of pictures": [([picture(i) for i in range(12)], LABELS.tolist())],
}


@pytest.mark.parametrize("kind", DATA)
def test_the_same_images_and_labels(kind: str) -> None:
    x, y = gather(DATA[kind], None)
    assert x.dtype == torch.float32
    assert_close(x, PIXELS, rtol=0, atol=1e-7)
    assert torch.equal(y, LABELS)
    few, _ = gather(DATA[kind], 7)
    assert_close(few, PIXELS[:7], rtol=0, atol=1e-7)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval()


@pytest.mark.parametrize("kind", ["image and label", "rows of pictures", "arrays"])
def test_an_evaluation_is_the_same(kind: str) -> None:
    options: dict[str, Any] = {"threat": "l2", "images": 6, "attacks": "quick", "diagnosis": False}
    plain = gradreg.evaluate(network(), (PIXELS, LABELS), **options)
    found = gradreg.evaluate(network(), DATA[kind], calibration=DATA[kind], **options)
    assert torch.equal(found.index, plain.index)
    assert_close(found.threats["l2"].distance, plain.threats["l2"].distance)
    assert found.clean == plain.clean


def test_no_more_images_are_read_than_are_needed() -> None:
    read: list[int] = []

    def row(position: int) -> tuple[Tensor, int]:
        read.append(position)
        return BYTES[position], 1

    gather(Rows(row), 3)
    assert read == [0, 1, 2]


def test_a_data_set_of_hugging_face_names_its_classes() -> None:
    rows = DATA["rows of pictures"]
    rows.features = {"image": None, "label": type("ClassLabel", (), {"names": ["cat", "dog", "owl"]})()}
    images = images_of(rows)
    assert isinstance(images, Images)
    assert images.classes == ("cat", "dog", "owl")
    assert torch.equal(images.pixels, BYTES)
    assert gradreg.evaluate(network(), rows, threat="l2", images=4, attacks="quick", diagnosis=False).data.classes


@pytest.mark.parametrize("kind", ["image and label", "rows of pictures", "a loader"])
def test_training_is_the_same(kind: str, tmp_path: Path) -> None:
    """Loaders in the same order give the same weights; a data set is shuffled, and trains too."""
    model, again = network(), network()
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 5, "optimizer": {"name": "sgd", "lr": 0.05}}
    held = named("image", "label")
    fitted = gradreg.fit(model, (DATA[kind], DATA[kind]), {"name": "gradient", "eps": 0.1}, **settings)
    assert fitted.best["held_out"] == 12
    if kind != "rows of pictures":
        plain = [(batch["image"], batch["label"]) for batch in held]
        gradreg.fit(again, (plain, plain), {"name": "gradient", "eps": 0.1}, **settings)
        assert_close(model[1].weight, again[1].weight)  # type: ignore[index]
    else:
        gradreg.fit(again, DATA[kind], held_out=4, **settings)
        assert not torch.equal(again[1].weight, network()[1].weight)  # type: ignore[index]


def uneven(position: int) -> dict[str, Any]:
    return {"image": torch.rand(3, 8, 8 + position), "label": 1}


def cut_short() -> Image.Image:
    """A picture whose file is read when its pixels are asked for."""
    file = BytesIO()
    Image.fromarray(BYTES[0].permute(1, 2, 0).numpy()).save(file, "PNG")
    return Image.open(BytesIO(file.getvalue()[: file.tell() // 2]))


class Unlisted:
    def __len__(self) -> int:
        raise RuntimeError("not listed yet")

    def __getitem__(self, position: int) -> Any:
        raise IndexError(position)


BAD: dict[str, tuple[Any, str]] = {
    "no labels": ([{"image": PIXELS}], "or a mapping with 'image' or 'pixel_values' and .*; got a mapping with"),
    "no images": ([{"x": PIXELS, "label": LABELS}], "got a mapping with 'x', 'label'"),
    "three": ([(PIXELS, LABELS, LABELS)], "must give .*; got a tuple of 3"),
    "parts": ({"train": [], "test": []}, "got parts train, test: pass one of them"),
    "sizes": (Rows(uneven), r"must have one shape; got \(3, 8, 8\) and \(3, 8, 9\)"),
    "words": (Rows(lambda i: {"image": "a.png", "label": 0}), "must be a tensor, an array or a picture; got 'a.png'"),
    "names": ([{"image": PIXELS, "label": ["cat"] * 12}], "labels of the data must be numbers"),
    "a name": (Rows(lambda i: (PIXELS[i], "cat")), "labels of the data must be numbers; got 'cat'"),
    "no label": (Rows(lambda i: (PIXELS[i], None)), "labels of the data must be numbers; got None"),
    "no labels of a batch": ([(PIXELS, None)], "labels of the data must be numbers; got None"),
    "a picture of no range": (Rows(lambda i: (Image.new("I", (8, 8)), 0)), "failed at image .*mode I, have no known"),
    "a batch of such": ([([Image.new("I", (8, 8))] * 2, [0, 1])], "failed at image 0 of a batch .*mode I"),
    "a picture cut short": (Rows(lambda i: (cut_short(), 0)), r"failed at image .*OSError: image file is truncated"),
    "no rows": (TensorDataset(PIXELS[:0], LABELS[:0]), "The data holds no images"),
    "no length": (Unlisted(), "failed at its length .*RuntimeError: not listed yet"),
}


@pytest.mark.parametrize("kind", BAD)
def test_anything_else_is_told_what_was_expected(kind: str) -> None:
    data, sentence = BAD[kind]
    for call in (lambda: gather(data, None), lambda: gradreg.evaluate(network(), data, threat="l2")):
        with pytest.raises(GradregError, match=sentence):
            call()


def test_normalised_images_are_refused_where_they_are_used() -> None:
    data = named("pixel_values", "labels", 2 * PIXELS - 1)
    with pytest.raises(GradregError, match="outside the box 0 to 1"):
        gradreg.evaluate(network(), data, threat="l2", images=4)
    rows = Rows(lambda i: {"pixel_values": 2 * PIXELS[i] - 1, "labels": 0})
    with pytest.raises(GradregError, match=r"must have pixels in \[0, 1\]; got -1 to .*: drop the normalisation"):
        gradreg.fit(network(), rows, epochs=1)


def test_a_data_set_in_memory_is_bytes_where_that_loses_nothing() -> None:
    assert isinstance(images_of(Rows(lambda i: (BYTES[i], 0))), Images)
    soft = torch.rand(12, 3)
    found = images_of(Rows(lambda i: (BYTES[i], soft[i])))
    assert isinstance(found, Tensors)
    assert torch.equal(found.x, BYTES / 255)
    assert torch.equal(found.y, soft)
    between = images_of(Rows(lambda i: (BYTES[i] / 300, 0)))
    assert isinstance(between, Tensors)
    assert torch.equal(between.x, BYTES / 300)
    with pytest.raises(GradregError, match="augmented must be bytes, or bytes over 255"):
        images_of(Rows(lambda i: (BYTES[i] / 300, 0)), as_bytes=True)
    with pytest.raises(GradregError, match="augmented must be whole numbers, one per image"):
        images_of(Rows(lambda i: (BYTES[i], soft[i])), as_bytes=True)


def test_random_transforms_of_a_data_set_are_not_frozen_in_silence() -> None:
    flipped = Rows(lambda i: (BYTES[i].flip(2) if torch.rand(()) < 0.5 else BYTES[i], 0))
    torch.manual_seed(0)
    for call in (
        lambda: gradreg.fit(network(), flipped, epochs=1, held_out=2),
        lambda: gradreg.evaluate(network(), flipped, threat="l2"),
    ):
        with pytest.raises(GradregError, match="gives other images when it is asked again"):
            call()


def test_labels_may_be_a_list_and_four_rows_are_no_channels() -> None:
    y = gather((PIXELS, LABELS.tolist()), None)[1]
    assert torch.equal(y, LABELS)
    small = torch.rand(5, 3, 4, 4)
    assert torch.equal(gather((small.permute(0, 2, 3, 1).numpy(), [0] * 5), None)[0], small)
    assert torch.equal(gather((small.numpy(), [0] * 5), None)[0], small)
    with pytest.raises(GradregError, match=r"got 'cifar10': load it, gradreg.data.load\('cifar10'\)"):
        gather("cifar10", None)


def test_a_mapping_is_no_list_of_rows() -> None:
    assert not pairs.is_rows({"train": 1})
    assert not pairs.is_rows([1])
    assert not pairs.is_rows(Tensor())
    assert pairs.is_rows(TensorDataset(PIXELS, LABELS))
