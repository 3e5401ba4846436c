"""Batches that must be equal to the bit."""

import torch
from torch import Tensor


def assert_same(a: list[tuple[Tensor, Tensor]], b: list[tuple[Tensor, Tensor]]) -> None:
    assert len(a) == len(b)
    for (x, y), (u, v) in zip(a, b, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)
