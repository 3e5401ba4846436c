"""Data sets of Hugging Face, made in memory: by rows, in torch's format, through a loader, as a stream."""

from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader

import gradreg
from gradreg.bounds.data import gather

BYTES = np.random.default_rng(0).integers(256, size=(12, 8, 8, 3), dtype=np.uint8)
LABELS = [i % 3 for i in range(12)]


def made() -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "owl"])})
    return datasets.Dataset.from_dict({"image": list(BYTES), "label": LABELS}, features=features)


def transformed() -> Any:
    """As the examples of transformers prepare images, without the normalisation."""

    def prepare(rows: dict[str, Any]) -> dict[str, Any]:
        values = [torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 for image in rows["image"]]
        return {"pixel_values": values, "labels": rows["label"]}

    return made().with_transform(prepare)


KINDS: dict[str, Any] = {
    "rows": made,
    "torch's format": lambda: made().with_format("torch"),
    "numpy's format": lambda: made().with_format("numpy"),
    "a loader": lambda: DataLoader(made().with_format("torch"), batch_size=5),
    "a transform": transformed,
    "a loader of a transform": lambda: DataLoader(transformed(), batch_size=5),
    "a stream": lambda: made().to_iterable_dataset(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_images_and_labels(kind: str) -> None:
    x, y = gather(KINDS[kind](), None)
    assert_close(x, torch.from_numpy(BYTES).permute(0, 3, 1, 2) / 255, rtol=0, atol=1e-7)
    assert y.tolist() == LABELS


def test_trained_and_evaluated() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    gradreg.fit(model, made(), {"name": "gradient", "eps": 0.1}, epochs=1, batch_size=4, held_out=4)
    found = gradreg.evaluate(model.eval(), made(), threat="l2", images=6, attacks="quick", diagnosis=False)
    assert found.data.classes == ("cat", "dog", "owl")
    parts = datasets.DatasetDict({"train": made(), "test": made()})
    with pytest.raises(gradreg.GradregError, match="parts train, test: pass one of them"):
        gradreg.evaluate(model, parts, threat="l2")
