"""A run of four steps and an evaluation of it on a dozen digits: everything that shipping needs, in seconds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.config import tables
from gradreg.data import Images, load
from gradreg.evaluation import Evaluation, evaluate
from gradreg.runs import Config
from gradreg.runs.opening import open_model
from gradreg.training import train

RECIPE: dict[str, Any] = {
    "data": "mnist5k",
    "model": {"name": "small"},
    "objective": {"name": "gradient", "threat": "l2", "eps": 1.0, "h": 0.1},
    "epochs": 2,
    "batch_size": 10,
    "held_out": 3980,
    "device": "cpu",
}
IMAGES = 12


def tiny_run(folder: Path, **changes: Any) -> Path:
    torch.set_num_threads(1)
    train(tables.build(Config, RECIPE | changes), folder)
    return folder


def tiny_evaluation(run: str, folder: Path) -> Evaluation:
    """Of the test images alone, since without training images there are no bounds to wait for."""
    opened = open_model(run)
    assert isinstance(opened.data.test, Images)
    return evaluate(
        opened.model,
        replace(opened.data.test, source=opened.data.name),
        images=IMAGES,
        attacks="quick",
        diagnosis=False,
        subject=opened.subject,
        folder=folder,
    )


def logits(model: nn.Module) -> Tensor:
    test = load("mnist5k").test
    assert isinstance(test, Images)
    with torch.no_grad():
        found: Tensor = model(test.floats(slice(20)))
    return found
