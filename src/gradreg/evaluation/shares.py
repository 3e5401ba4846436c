"""Shares of images, with what the choice of images leaves open about them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Share:
    """A share of n images and its 95 % Clopper-Pearson interval, for the choice of images."""

    value: float
    low: float
    high: float
    n: int


def share_of(marked: Tensor) -> Share:
    """The share of images that are marked, with its interval."""
    from gradreg.smoothing.intervals import clopper_pearson

    hits, n = int(torch.count_nonzero(marked)), len(marked)
    return Share(hits / n, *clopper_pearson(hits, n), n)
