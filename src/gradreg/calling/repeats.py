"""Does a model say the same of an image when it is asked again, and when other images are in the batch?"""

from collections.abc import Callable

import torch
from torch import Tensor

from gradreg.errors import ModelError

# Allowed difference between two answers about an image, relative to the largest logit; cuDNN stays far below it.
REPEATABLE = 1e-4
# So many images are asked about in other company.
_TOGETHER = 8

_Ask = Callable[[Tensor], Tensor]


def apart(first: Tensor, again: Tensor) -> float:
    """The largest difference of logits, as a fraction of the largest logit."""
    scale = first.abs().amax().clamp(min=torch.finfo(first.dtype).tiny)
    return float((first - again).abs().amax() / scale)


def in_company(ask: _Ask, x: Tensor, box: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """The logits of a few images, and of the same images beside others, in a batch of the same shape.

    A batch of another shape may round otherwise. The others are the negatives of the images that were there before.
    """
    few = x[:_TOGETHER] if len(x) > 1 else x.expand(2, *x.shape[1:])
    kept, rest = few.tensor_split(2)
    beside = torch.cat([kept, box[0] + box[1] - rest])
    return ask(few)[: len(kept)], ask(beside)[: len(kept)]


def check_again(ask: _Ask, x: Tensor, box: tuple[float, float], first: Tensor, again: Tensor) -> None:
    """Refuse the model if its second answer about a batch, given in two halves, differs by more than rounding."""
    if apart(first, again) > REPEATABLE:
        # In low precision halves of a batch may round so far from the whole; the same shape tells.
        check_alone(ask, x, box)
        check_same(ask(x), ask(x))


def check_same(first: Tensor, again: Tensor) -> None:
    """Refuse a model whose second answer about the same images differs from its first."""
    if apart(first, again) > REPEATABLE:
        raise ModelError(
            "The model returns different logits when asked again about the same images (by "
            f"{float((first - again).abs().amax()):.2g}): one query of a randomised model proves nothing; fix its "
            "randomness, or average over many draws inside it."
        )


def check_alone(ask: _Ask, x: Tensor, box: tuple[float, float]) -> None:
    """Refuse a model whose answer about an image depends on the other images of the batch."""
    first, beside = in_company(ask, x, box)
    if apart(first, beside) > REPEATABLE:
        check_same(first, in_company(ask, x, box)[0])
        raise ModelError(
            "The model's logits for an image depend on the other images of the batch (they moved by "
            f"{apart(first, beside):.0%} of the largest), so nothing found in a batch holds for the image alone: use "
            "running statistics (track_running_stats=True) or whatever else keeps images apart."
        )
