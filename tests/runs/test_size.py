"""The size that a network gets: folders are decoded at it, other images keep theirs and the network resizes them."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradreg
from gradreg import GradregError
from gradreg.runs.opening import open_model

SIDE = 12
NETWORK = """
from torch import nn

def takes_twelve(classes, channels=1):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 12 * 12, classes))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network that takes images of 12 by 12, and arrays of images of 8 by 8 and of 8 by 6."""
    (tmp_path / "size_networks.py").write_text(NETWORK)
    source = np.random.default_rng(0)
    for name, shape in (("square", (30, 8, 8)), ("oblong", (30, 8, 6))):
        pixels = source.integers(0, 256, shape, dtype=np.uint8)
        np.savez(
            tmp_path / f"{name}.npz", x_train=pixels, y_train=np.arange(30) % 3, x_test=pixels, y_test=np.arange(30) % 3
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "size_networks", raising=False)
    return tmp_path


def test_images_in_memory_keep_their_size_and_the_network_resizes_them(here: Path) -> None:
    opened = open_model("size_networks:takes_twelve", "npz:square.npz", size=SIDE)
    x, y = opened.data.test.floats(), opened.data.test.labels
    assert x.shape[1:] == (1, 8, 8)
    resized = F.interpolate(x, (SIDE, SIDE), mode="bilinear", antialias=True)
    torch.testing.assert_close(opened.model(x), opened.model.get_submodule("network")(resized))
    found = gradreg.attack(opened.model, x[:3], y[:3], threat="l2", attacks="quick")
    distance = (found.adversarial - x[:3]).flatten(1).norm(dim=1)
    torch.testing.assert_close(found.distance, distance.where(found.success, torch.inf))


def test_a_built_in_data_set_does_too(here: Path) -> None:
    opened = open_model("size_networks:takes_twelve", "mnist5k", size=SIDE)
    assert opened.data.test.floats([0]).shape == (1, 1, 28, 28)
    assert opened.model(opened.data.test.floats([0, 1])).shape == (2, 10)


def test_what_is_refused(here: Path) -> None:
    with pytest.raises(
        GradregError, match=r"must accept images .* If it takes images of another size, pass that as size"
    ):
        open_model("size_networks:takes_twelve", "npz:square.npz")
    with pytest.raises(GradregError, match="side of a square and its images are 8 × 6; got 12"):
        open_model("size_networks:takes_twelve", "npz:oblong.npz", size=SIDE)
