"""Our CLEVER beside ART's, at equal numbers of sampled points."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench import measure
from gradreg.bounds import clever

_POOL, _ART_BLOCKS = 10, 50


@dataclass(frozen=True)
class CleverRow:
    """Our CLEVER and ART's `clever_u` on one image; ART's figures are None where it is not installed."""

    points: int
    """Points at which gradients are taken."""
    seconds: float
    art_seconds: float | None
    score: float
    art_score: float | None


def compare_clever(model: nn.Module, x: Tensor, y: Tensor, *, samples: int, radius: float, rounds: int) -> CleverRow:
    """The l2 score of the first image from as many points as ART draws.

    ART draws a pool of 10 · `samples` points for each rival class, and its blocks are drawn again from that pool. We
    differentiate the margin to the nearest rival, so one class' pool would do; here we draw as many as it does for all
    classes together, all of them fresh.
    """
    with torch.no_grad():
        classes = model(x[:1]).shape[1]
    blocks = _POOL * (classes - 1)
    scores: dict[str, float] = {}

    def ours() -> None:
        found = clever(model, x[:1], y[:1], threat="l2", radius=radius, blocks=blocks, samples=samples)
        scores["ours"] = float(found.score[0])

    steps: dict[str, measure.Step] = {"ours": ours}
    peer = _art_clever(model, x[0].numpy(), classes, samples, radius)
    if peer is not None:

        def theirs() -> None:
            scores["art"] = float(peer())

        steps["art"] = theirs
    times = measure.seconds(steps, rounds)
    return CleverRow(blocks * samples, times["ours"], times.get("art"), scores["ours"], scores.get("art"))


def _art_clever(
    model: nn.Module, image: np.ndarray[Any, Any], classes: int, samples: int, radius: float
) -> Callable[[], float] | None:
    try:
        metrics, estimators = import_module("art.metrics"), import_module("art.estimators.classification")
    except ImportError:
        return None
    classifier = estimators.PyTorchClassifier(
        model, loss=nn.CrossEntropyLoss(), input_shape=image.shape, nb_classes=classes, clip_values=(0.0, 1.0)
    )

    def score() -> float:
        # ART draws from numpy's global stream, which is put back where it was.
        before = np.random.get_state()
        np.random.seed(0)
        try:
            options = {"radius": radius, "norm": 2, "pool_factor": _POOL, "verbose": False}
            return float(metrics.clever_u(classifier, image, nb_batches=_ART_BLOCKS, batch_size=samples, **options))
        finally:
            np.random.set_state(before)

    return score
