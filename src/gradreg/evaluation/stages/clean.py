"""Clean accuracy: the model's answers to the unperturbed images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.errors import ConfigError
from gradreg.evaluation.work import Work
from gradreg.losses import misclassified, probability_margin


@dataclass(frozen=True)
class Clean:
    """Predictions and margins of the selected images; errors of the whole test set if it was classified.

    The prediction is the label where that is among the k largest logits, else the largest.
    """

    prediction: Tensor
    margin: Tensor
    errors: int | None
    images: int


def check(work: Work, classes: int) -> None:
    """Refuse a top-k that any answer satisfies."""
    if work.options.topk >= classes:
        raise ConfigError(f"topk must lie between 1 and {classes - 1} for {classes} classes; got {work.options.topk}.")


def clean(work: Work) -> Clean:
    """One forward per image."""
    found: Clean = work.ledger.once("clean", Clean, lambda: _clean(work))
    return found


def _clean(work: Work) -> Clean:
    x, y, whole, size = work.inputs.x, work.inputs.y, work.inputs.whole, work.options.batch_size
    topk = work.options.topk
    logits = torch.cat([work.classifier.check(a, b) for a, b in zip(x.split(size), y.split(size), strict=True)])
    total, errors = work.inputs.test_set.images, None
    if whole is not None:
        errors = 0
        for start in range(0, total, size):
            images, labels = (part.to(x.device) for part in whole(slice(start, start + size)))
            errors += int(misclassified(work.classifier.check(images, labels), labels, topk).sum())
    # Where the label is tied with a rival, the rival is the answer: a tie is an error.
    rival = logits.scatter(1, y[:, None], -torch.inf).argmax(1)
    prediction = torch.where(misclassified(logits, y, topk), rival, y)
    return Clean(prediction.cpu(), probability_margin(logits, y, topk).cpu(), errors, total)
