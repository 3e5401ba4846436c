"""The precision of reductions."""

import torch


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """The precision to reduce in: squares and sums of 3,072 half-precision pixels overflow or vanish."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
