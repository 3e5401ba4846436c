"""The precision of reductions, and the size of logits that their rounding is relative to."""

import torch
from torch import Tensor

# A class so far behind the largest logit has a probability of 0 in single precision …
_HOPELESS = 104.0
# … and where it is so many times as far behind as the class before it, and farther than logits are large, a mask
# put it there and no computation.
_GAP, _LARGE = 100.0, 10.0


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """The precision to reduce in: squares and sums of 3,072 half-precision pixels overflow or vanish."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def contenders(logits: Tensor, topk: int = 1) -> Tensor:
    """Logits as they are, but those of classes that are masked, by −10⁹ say, as the last one before these.

    Whatever is relative to the size or the range of logits is relative to theirs: a mask rounds nothing.
    """
    logits = logits.to(at_least_single(logits.dtype))
    if logits.shape[1] <= topk + 1:
        return logits
    first = logits.amax(1, keepdim=True)
    behind = first - logits
    ordered = behind.sort(1).values[:, topk:]
    least = torch.maximum(_GAP * ordered[:, :-1], _LARGE * first.abs()).clamp(min=_HOPELESS)
    masked = ordered[:, 1:] > least
    last = torch.cat([ordered[:, :1], ordered[:, 1:].masked_fill(masked.cumsum(1) > 0, 0)], 1).amax(1, keepdim=True)
    return torch.where(behind > last, first - last, logits)


def extent(logits: Tensor, topk: int = 1) -> Tensor:
    """How far the logits of an image lie apart, (N, 1), those of masked classes left out."""
    shown = contenders(logits, topk)
    return shown.amax(1, keepdim=True) - shown.amin(1, keepdim=True)
