"""Can gradients be trusted? Gradients that vanish, and gradients that disagree with finite differences."""

import math
from functools import partial

import torch
from torch import Tensor

from gradreg.diagnosis.case import Case
from gradreg.diagnosis.flags import Flag, graded, make
from gradreg.losses import cross_entropy, probability_margin
from gradreg.norms import per_image
from gradreg.precision import at_least_single

_DIRECTIONS = 8
# A finite difference steps by this fraction of ε to either side, but moves no pixel by more than this fraction of the
# box.
_STEP, _PIXEL = 0.25, 0.05
# A few images without a gradient are suspicious; beyond this fraction an attack's success rate means nothing.
_ZERO = 0.05
_GAP = 0.02
_CORRELATION, _RATIO, _COSINE = 0.9, 1.25, 0.9


def zero_gradient_margin(case: Case) -> Flag:
    """Images at which the gradient of the margin is zero or not finite."""
    return _zero_gradient(case, "zero-gradient-margin", "margin", case.gradient(case.x, case.margin))


def zero_gradient_cross_entropy(case: Case) -> Flag:
    """The same for the cross entropy, whose gradient underflows where the model is very confident."""
    return _zero_gradient(case, "zero-gradient-cross-entropy", "cross entropy", case.gradient(case.x, cross_entropy))


def saturated_loss(case: Case) -> Flag:
    """Logits so far apart that the rivals' probabilities underflow: a softmax near temperature 0 (§2.2)."""
    gap = -case.margin(case.logits, case.y)
    limit = -math.log(torch.finfo(at_least_single(case.logits.dtype)).tiny)
    images = int((gap > limit).sum())
    finding = (
        f"The right logit leads by {float(gap.median()):.3g} (median), and on {images} of {len(case)} images by more "
        f"than {limit:.0f}, where the rivals' probabilities underflow."
    )
    return graded("saturated-loss", images / len(case), finding, warn=0.0, lead=float(gap.median()), n=len(case))


def closed_loss_gap(case: Case) -> Flag:
    """ℓ₀ − ℓ(x) that shrinks together with ‖∇ℓ‖: a softmax of high temperature (§2.2), which only looks flat.

    The bounds of Prop. 2.2 are quotients of the two, so nothing is gained.
    """
    gap = float(-probability_margin(case.logits, case.y, case.topk).median())
    slope = float(case.threat.dual_norm(case.gradient(case.x, partial(_probability_margin, case.topk))).median())
    finding = (
        f"On probabilities the margin is {gap:.2g} and its gradient {slope:.2g} (medians): their quotient, "
        f"{gap / slope if slope else math.inf:.2g}, is what bounds the distance, however small the gradient is."
    )
    return graded("closed-loss-gap", gap, finding, warn=_GAP, low=True, slope=slope, n=len(case))


def slope_mismatch(case: Case) -> Flag:
    """Along the gradient, the loss should rise as fast as the gradient says."""
    x, size = _base(case)
    gradient = case.gradient(x, case.margin)
    real, said = _both_slopes(case, x, gradient, case.threat.ascent(gradient), size)
    ratio = float((real / said).nan_to_num(0.0).median())
    evidence: dict[str, float | int] = {"value": ratio, "low": 1 / _RATIO, "high": _RATIO, "step": size, "n": len(case)}
    good = 1 / _RATIO <= ratio <= _RATIO
    finding = f"Along the gradient the margin rises {ratio:.3g} times as fast as the gradient says (median)."
    return make("slope-mismatch", "info" if good else "warning", finding, **evidence)


def slope_uncorrelated(case: Case) -> Flag:
    """In random directions, slopes by autograd and by finite differences should be the same numbers."""
    x, size = _base(case)
    gradient = case.gradient(x, case.margin)
    pairs = [_both_slopes(case, x, gradient, case.direction(draw), size) for draw in range(_DIRECTIONS)]
    real, said = (torch.stack(part, 1).double() for part in zip(*pairs, strict=True))
    scale = torch.linalg.vector_norm(real, dim=1) * torch.linalg.vector_norm(said, dim=1)
    agreement = float(((real * said).sum(1) / scale.where(scale > 0, 1)).median())
    finding = (
        f"In {_DIRECTIONS} random directions, slopes by autograd and by finite differences agree to {agreement:.3f} "
        "(median cosine)."
    )
    return graded("slope-uncorrelated", agreement, finding, warn=_CORRELATION, low=True, step=size, n=len(case))


def unstable_gradient(case: Case) -> Flag:
    """A little noise should hardly turn the gradient."""
    x, size = _base(case)
    here = case.gradient(x, case.margin).flatten(1).double()
    there = case.gradient(case.inside(x + size * case.direction(_DIRECTIONS)), case.margin).flatten(1).double()
    scale = torch.linalg.vector_norm(here, dim=1) * torch.linalg.vector_norm(there, dim=1)
    cosine = float(((here * there).sum(1) / scale.where(scale > 0, 1)).median())
    finding = f"Noise of norm {size:.3g} turns the gradient to a cosine of {cosine:.3f} with itself (median)."
    return graded("unstable-gradient", cosine, finding, warn=_COSINE, low=True, noise=size, n=len(case))


def _zero_gradient(case: Case, code: str, name: str, gradient: Tensor) -> Flag:
    flat = gradient.flatten(1)
    zero, wrong = (flat == 0).all(1), ~flat.isfinite().all(1)
    images = int((zero | wrong).sum())
    finding = f"The {name} of {images} of {len(case)} images has a gradient that is zero or not finite."
    return graded(
        code,
        images / len(case),
        finding,
        warn=0.0,
        error=_ZERO,
        zero=int(zero.sum()),
        infinite=int(wrong.sum()),
        n=len(case),
    )


def _probability_margin(topk: int, logits: Tensor, y: Tensor, /) -> Tensor:
    return probability_margin(logits, y, topk)


def _base(case: Case) -> tuple[Tensor, float]:
    """The images, moved so far into the box that a step to either side stays in it, and the length of the step."""
    low, high = case.classifier.box
    size = _STEP * case.eps
    room = min(size, _PIXEL * (high - low))
    return case.inside(case.x, room), size


def _both_slopes(case: Case, x: Tensor, gradient: Tensor, direction: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """(ℓ(x + hd) − ℓ(x − hd)) / 2h and ⟨∇ℓ, d⟩."""
    low, high = case.classifier.box
    widest = direction.flatten(1).abs().amax(1).clamp(min=torch.finfo(direction.dtype).tiny)
    h = (_PIXEL * (high - low) / widest).clamp(max=size)
    step = (per_image(h, x) * direction).to(x.dtype)
    real = (case.margin_at(x + step) - case.margin_at(x - step)) / (2 * h)
    return real, (gradient * direction).flatten(1).sum(1)
