"""Shares of images, with what the choice of images leaves open about them."""

import re
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


def top_k(words: str, k: int) -> str:
    """`words` with every error and accuracy called by its k unless that is 1: "clean error" is "clean top-5 error"."""
    return words if k == 1 else re.sub(r"\b(errors?|accurac(?:y|ies))\b", rf"top-{k} \1", words)
