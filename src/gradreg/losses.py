"""Losses with one value per image.

The margin is negative exactly when the image is classified correctly, so 0 is the ℓ₀ of the paper's Prop. 2.2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from gradreg.checks.scalars import check_integer, check_number
from gradreg.checks.tensors import check_classes, check_device, check_labels, check_scores
from gradreg.precision import at_least_single

# How many classes beyond the first k the smoothed k-th largest looks at; the others are far behind.
_CONTENDERS = 30
# No label: torch leaves out images with the label −100, which would count as images without a loss.
_NONE = -(1 << 62)


def cross_entropy(logits: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross entropy per image, in single precision or better: bf16 keeps two digits of a loss.

    `y` are labels, or probabilities of the shape of the logits. `smoothing` is the fraction of a label that is spread
    evenly over all classes.
    """
    logits = check_scores(logits)
    soft = isinstance(y, Tensor) and y.is_floating_point() and y.shape == logits.shape
    y = y if soft else check_labels(y, len(logits), look=False)
    smoothing = check_number("smoothing", smoothing, least=0, below=1)
    check_device("y", y, logits)
    precise = logits.to(at_least_single(logits.dtype))
    try:
        return F.cross_entropy(precise, y, reduction="none", label_smoothing=smoothing, ignore_index=_NONE)
    except IndexError:
        check_classes(y, logits.shape[1])
        raise


def margin(scores: Tensor, y: Tensor, topk: int = 1) -> Tensor:
    """max_{i≠c} f_i − f_c, the modified Carlini-Wagner loss of §2.2; top-k: the k-th largest f_i instead.

    `scores` are logits or probabilities. The true class is left out before sorting, so the value is the true margin
    for misclassified images too: "the (k+1)-th largest of all minus f_c" is 0, with a zero gradient, at rank k + 1.
    """
    return margin_and_size(scores, y, topk)[0]


def margin_and_size(scores: Tensor, y: Tensor, topk: int = 1) -> tuple[Tensor, Tensor]:
    """The margin, and the larger of the two scores that it is the difference of: its rounding is relative to that."""
    own, rivals, topk = _own_and_rivals(scores, y, topk)
    kth = rivals.topk(topk).values[:, -1]
    return kth - own, torch.maximum(kth.abs(), own.abs())


def misclassified(logits: Tensor, y: Tensor, topk: int = 1) -> Tensor:
    """Images whose label is not strictly ahead: a tie is an error, since nothing says how it would be broken."""
    return margin(logits, y, topk) >= 0


def probability_margin(logits: Tensor, y: Tensor, topk: int = 1) -> Tensor:
    """The margin on softmax probabilities, the loss of the paper's bounds; it lies in [−1, 1].

    With d = z_i − z_c it is p_c (exp(d) − 1), or p_i (1 − exp(−d)) where d > 0: probabilities of almost equal logits
    (a high temperature) are rounded before their difference is taken, and d is not.
    """
    logits = check_scores(logits)
    precise = logits.to(at_least_single(logits.dtype))
    # Relative to the largest, so that huge logits lose no digits in the sum of their exponentials.
    precise = precise - precise.detach().amax(1, keepdim=True)
    own, rivals, topk = _own_and_rivals(precise, y, topk)
    kth, total = rivals.topk(topk).values[:, -1], precise.logsumexp(1)
    ahead, behind = (kth - own).clamp(min=0), (kth - own).clamp(max=0)
    return torch.where(kth > own, -(kth - total).exp() * (-ahead).expm1(), (own - total).exp() * behind.expm1())


def soft_margin(scores: Tensor, y: Tensor, sharpness: float = 10.0, topk: int = 1) -> Tensor:
    """The margin with log Σ exp(βf_i)/β over i ≠ c for the maximum: smooth, and never below the margin.

    So a negative soft margin proves a correct classification, and a bound built on it is sound. It exceeds the
    margin by at most log(classes − 1)/β. (A softmax-weighted mean of the scores is smooth too, but lies *below* it.)

    Top-k: (log e_k − log e_{k−1})/β for the k-th largest, where e_k is the k-th elementary symmetric polynomial of the
    exp(βf_i): the sum over all sets of k rivals, of which k = 1 is the case above. It tends to the margin as β grows,
    and may be on either side of it.
    """
    sharpness = check_number("sharpness", sharpness, above=0, usual="10 is usual")
    own, rivals, topk = _own_and_rivals(scores, y, topk)
    if topk > 1:
        return _soft_kth(rivals, sharpness, topk) - own
    # Relative to the largest rival, the logarithm is of at least 1: the excess cannot round below zero.
    largest = rivals.detach().amax(1, keepdim=True)
    excess = torch.logsumexp(sharpness * (rivals - largest), 1) / sharpness
    return largest.squeeze(1) + excess - own


def _soft_kth(scores: Tensor, sharpness: float, k: int) -> Tensor:
    """(log e_k − log e_{k−1})/β, by the recursion e_j(f_1 … f_i) = e_j(f_1 … f_{i−1}) + exp(βf_i) e_{j−1}(…)."""
    leading = scores.topk(min(_CONTENDERS + k, scores.shape[1] - 1)).values
    largest = leading.detach()[:, :1]
    # Not −inf for an empty sum: the gradient of log(0 + 0) is not a number.
    sums = leading.new_full((len(scores), k + 1), torch.finfo(scores.dtype).min / 8)
    sums = torch.cat([torch.zeros_like(sums[:, :1]), sums[:, 1:]], 1)
    for power in (sharpness * (leading - largest)).unbind(1):
        sums = torch.cat([sums[:, :1], torch.logaddexp(sums[:, 1:], sums[:, :-1] + power[:, None])], 1)
    return largest.squeeze(1) + (sums[:, k] - sums[:, k - 1]) / sharpness


def _own_and_rivals(scores: Tensor, y: Tensor, topk: int) -> tuple[Tensor, Tensor, int]:
    """The score of the true class, the scores with −∞ in its place, and `topk` as a checked number."""
    scores = check_scores(scores, "scores")
    classes, places = scores.shape[1], check_labels(y, len(scores), look=False)[:, None]
    check_device("y", places, scores)
    topk = check_integer("topk", topk, least=1, most=classes - 1, usual=f"the model has {classes} classes")
    try:
        return scores.gather(1, places).squeeze(1), scores.scatter(1, places, -torch.inf), topk
    except RuntimeError:
        check_classes(places, classes)
        raise
