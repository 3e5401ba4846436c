"""Does a model say the same of an image when it is asked again, and when other images are in the batch?"""

from collections.abc import Callable, Sequence
from math import isfinite

import torch
from torch import Tensor

from gradreg.errors import ModelError
from gradreg.precision import contenders, extent

# Allowed difference between two answers about an image, relative to the range of the logits; cuDNN stays far below it.
REPEATABLE = 1e-4
# Rounding is relative to the size of the logits and not to their range: this fraction of it counts as range.
_OF_SIZE = 0.02
# The least range that is believed of an image, as a fraction of the median over the images.
_OF_USUAL = 0.1
# The same between batches of different sizes: bf16 has seven bits, and another size may be another sum.
ROUNDED = 0.05
# So many images are asked about in other company.
_TOGETHER = 8
# So many of the last images of a batch are asked about in another order.
_LAST = 32
# Fewer are asked about several times, so that others can stand before and, more of them, after.
_LEAST = 5

_Ask = Callable[[Tensor], Tensor]


def apart(first: Tensor, again: Tensor) -> float:
    """The largest difference of logits, as a fraction of the range of an image's logits.

    So neither a level that all logits share nor a mask over some hides what moves the answer.
    """
    return float(apart_each(first, again).amax())


def apart_each(first: Tensor, again: Tensor) -> Tensor:
    """The same for each image."""
    first, again = contenders(first), contenders(again)
    # Image by image: large logits of one hide nothing of the others. Logits that are all level have no range.
    reach = extent(first)
    reach = torch.maximum(reach, _OF_USUAL * reach.median())
    reach = torch.maximum(reach, _OF_SIZE * first.abs().amax(1, keepdim=True)).clamp(min=torch.finfo(first.dtype).tiny)
    return ((first - again).abs() / reach).amax(1)


def in_company(ask: _Ask, x: Tensor, box: tuple[float, float], logits: Tensor) -> list[tuple[Tensor, Tensor, float]]:
    """Pairs of logits of a few images that should agree, each with the fraction of their range that they may differ by.

    They are asked about in other places beside other images, in a batch of the same shape, and in a batch of another
    size, where low precision rounds otherwise. The others are as far from those that were there as the box allows.
    The last images are asked about without the first ones too. `logits` are what the model said about all of `x`.
    """
    few = x[:_TOGETHER] if len(x) >= _LEAST else x[torch.arange(_LEAST, device=x.device) % len(x)]
    (low, high), n = box, len(few) // 2
    kept, rest = few[:n], few[n:]
    others = torch.full_like(rest, low).where(rest > (low + high) / 2, high)
    first = ask(few)[:n]
    elsewhere = ask(torch.cat([others[:1], kept.flip(0), others[1:]]))[1 : n + 1].flip(0)
    another = logits if len(few) != len(x) else ask(few[:1].expand(2, *x.shape[1:]))
    return [(first, elsewhere, REPEATABLE), (first[:1], another[:1], ROUNDED), mixed(ask, x, logits)]


def mixed(ask: _Ask, x: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, float]:
    """The last logits of a batch, and those of its last images among themselves, every second one first."""
    last = torch.arange(max(0, len(x) - _LAST), len(x), device=x.device)
    order = torch.cat([last[1::2], last[::2]])
    return logits[order], ask(x[order]), ROUNDED


def check_again(ask: _Ask, x: Tensor, box: tuple[float, float], first: Tensor, again: Tensor) -> None:
    """Refuse the model if its second answer about a batch, given in two parts, differs by more than rounding.

    Both answers may be copies on the host.
    """
    moved = apart(first, again)
    if not moved <= REPEATABLE or len(x) == 1:
        # In low precision parts of a batch may round so far from the whole; the same shape tells.
        check_alone(ask, x, box, first.to(x.device))
        check_same(ask(x), ask(x))
        if not moved <= ROUNDED:
            raise _depends(moved)


def check_same(first: Tensor, again: Tensor) -> None:
    """Refuse a model whose second answer about the same images differs from its first."""
    if apart(first, again) > REPEATABLE:
        raise ModelError(
            "The model returns different logits when asked again about the same images (by "
            f"{float((first - again).abs().amax()):.2g}): one query of a randomised model proves nothing; use "
            "gradreg.Averaged(model, draws=20), or fix its randomness."
        )


def check_alone(ask: _Ask, x: Tensor, box: tuple[float, float], logits: Tensor) -> None:
    """Refuse a model whose answer about an image depends on the other images of the batch, their order or number."""
    pairs = in_company(ask, x, box, logits)
    if excess(pairs) <= 1:
        return
    moved = max(apart(first, other) for first, other, _ in pairs)
    if not isfinite(moved):
        raise ModelError(
            "The model's logits are not finite for images that are asked about in another batch: look for overflow or "
            "0/0 in the model."
        )
    check_same(pairs[0][0], in_company(ask, x, box, logits)[0][0])
    raise _depends(moved)


def check_mixed(ask: _Ask, x: Tensor, logits: Tensor) -> None:
    """Refuse a model whose logits for the last images of this batch depend on the first ones."""
    first, again, allowed = mixed(ask, x, logits)
    moved = apart(first, again)
    if not moved <= allowed:
        check_same(logits, ask(x))
        raise _depends(moved)


def _depends(moved: float) -> ModelError:
    return ModelError(
        f"The model's logits for an image depend on the other images of the batch (they moved by {moved:.0%} of their "
        "range), so nothing found in a batch holds for the image alone: use running statistics "
        "(track_running_stats=True) or whatever else keeps images apart."
    )


def excess(pairs: Sequence[tuple[Tensor, Tensor, float]]) -> float:
    """By how many times the answers differ more than they may, at most; by one look at the device."""
    return float(torch.stack([apart_each(first, other).amax() / allowed for first, other, allowed in pairs]).amax())
