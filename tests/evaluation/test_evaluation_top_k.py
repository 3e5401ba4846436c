"""Top-k from end to end: an image is right while its label is among the k largest logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from evaluation_toys import linear, quick, toy
from gradreg import inspect_image
from gradreg.data import Images
from gradreg.errors import ConfigError
from gradreg.evaluation import load
from gradreg.losses import margin, probability_margin
from gradreg.report.cards.figures import Remarks, entries, figures
from gradreg.report.writing import report


def test_every_column_is_about_the_first_k(tmp_path: Path) -> None:
    """Four classes: with the label second everywhere, top-2 is right where top-1 is wrong."""
    found = quick(tmp_path / "two", topk=2, images=60, smoothing=(0.05,), radii=(0.01, 0.02), samples=300)
    test = toy().test
    assert isinstance(test, Images)
    x, y = test.floats(found.index), test.labels[found.index]
    logits = linear()(x).detach()
    wrong = margin(logits, y, 2) >= 0
    assert int((margin(logits, y) >= 0).sum()) > int(wrong.sum()) > 0
    assert torch.equal(found.wrong, wrong)
    assert found.clean == (int(wrong.sum()), 60)
    assert_close(found.margin, probability_margin(logits, y, 2))
    record = found.threats["l2"]
    assert torch.equal(record.attacked.distance == 0, wrong)
    assert record.bounded is not None
    assert torch.equal(record.bounded.lipschitz_bound == 0, wrong)
    # A second rival must pass the label too, so no image is nearer to an error than for top-1.
    nearer = quick(images=60, smoothing=None).threats["l2"].attacked.distance
    assert bool((record.attacked.distance >= 0.999 * nearer).all())
    # The smoothed classifier's answer is the class it certifies among the first two.
    right = found.smoothing[0].prediction == found.label
    assert float(right.float().mean()) > 0.5
    again = load(tmp_path / "two")
    assert again.settings == found.settings
    assert (again.settings.topk, again.settings.options["topk"]) == (2, 2)


def test_the_diagnosis_and_the_page_know_k(tmp_path: Path) -> None:
    found = quick(tmp_path / "two", topk=2, images=20, smoothing=None, diagnosis=True)
    assert not [flag.code for flag in found.threats["l2"].flags if flag.severity == "error"]
    page = report([found], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Accuracy is top-2 accuracy" in page
    assert "clean top-2 error" in page
    assert {figure.what.split(",")[0] for figure in figures(found)} == {"clean top-2 accuracy", "robust top-2 accuracy"}
    assert entries(found, Remarks()) == {}


def test_another_k_does_not_continue_the_work(tmp_path: Path) -> None:
    quick(tmp_path / "one", images=12, smoothing=None)
    with pytest.raises(ConfigError, match="was begun with other settings"):
        quick(tmp_path / "one", images=12, smoothing=None, topk=2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topk": 0}, "topk must be at least 1; got 0"),
        ({"topk": 4}, "topk must lie between 1 and 3 for 4 classes; got 4"),
        ({"topk": 1.5}, "topk must be a whole number; got 1.5"),
        ({"topk": 2, "autoattack": {"l2": [0.5]}}, "AutoAttack is about top-1; got topk=2"),
    ],
)
def test_what_k_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        quick(smoothing=None, **options)


def test_an_inspection_is_about_the_first_k() -> None:
    test = toy().test
    assert isinstance(test, Images)
    x, y = test.floats([30])[0], int(test.labels[30])
    one, two = (inspect_image(linear(), x, y, attacks="fmn", samples=200, topk=k) for k in (1, 2))
    assert two.topk == 2
    assert two.nearest > one.nearest > 0
    assert two.margin < one.margin < 0
    assert two.bound is not None
    assert float(two.bound.omega) <= two.nearest
    assert two.certificate.settings.topk == 2
