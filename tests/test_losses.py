"""Per-image losses: signs, ties, top-k, and the soft maximum that bounds from above."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gradreg import ConfigError
from gradreg.losses import cross_entropy, margin, probability_margin, soft_margin


def by_hand(scores: Tensor, y: Tensor, topk: int) -> Tensor:
    rows = []
    for row, label in zip(scores.tolist(), y.tolist(), strict=True):
        rivals = sorted((score for i, score in enumerate(row) if i != label), reverse=True)
        rows.append(rivals[topk - 1] - row[label])
    return torch.tensor(rows, dtype=scores.dtype)


@pytest.mark.parametrize("topk", [1, 3, 6])
def test_margin_by_hand(topk: int) -> None:
    scores, y = torch.randn(50, 7, dtype=torch.float64), torch.randint(0, 7, (50,))
    assert_close(margin(scores, y, topk), by_hand(scores, y, topk))


@pytest.mark.parametrize("topk", [1, 3])
def test_margin_is_negative_exactly_when_the_label_is_among_the_top(topk: int) -> None:
    scores, y = torch.randn(200, 7), torch.randint(0, 7, (200,))
    right = (scores.topk(topk).indices == y[:, None]).any(1)
    assert ((margin(scores, y, topk) < 0) == right).all()
    assert ((probability_margin(scores, y, topk) < 0) == right).all()


def test_top_k_margin_of_a_misclassified_image_still_has_a_gradient() -> None:
    """The (k+1)-th largest of *all* scores minus the label's own is 0, with zero gradient, at rank k + 1."""
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0]], requires_grad=True)
    y = torch.tensor([2])
    naive = scores.sort(descending=True).values[:, 2] - scores[:, 2]
    (flat,) = torch.autograd.grad(naive.sum(), scores)
    value = margin(scores, y, topk=2)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    assert naive.item() == 0
    assert not flat.any()
    assert value.item() == 1.0
    assert gradient.tolist() == [[0.0, 1.0, -1.0, 0.0]]


def test_probability_margin_is_bounded_and_finite_for_saturated_logits() -> None:
    logits = (1e4 * torch.randn(20, 5)).requires_grad_()
    value = probability_margin(logits, torch.randint(0, 5, (20,)))
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.abs().max() <= 1
    assert gradient.isfinite().all()


@pytest.mark.parametrize("topk", [1, 2])
@pytest.mark.parametrize("size", [1e-6, 1.0, 300.0])
def test_probability_margin_keeps_its_digits_for_logits_of_any_size(size: float, topk: int) -> None:
    """Single precision against the difference of probabilities in double precision, values and gradients."""
    logits, y = size * torch.randn(200, 5), torch.randint(0, 5, (200,))
    logits[:5, 0] = logits[:5, 1]  # ties too
    here, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    value, reference = probability_margin(here, y, topk), margin(exact.softmax(1), y, topk)
    assert_close(value.double(), reference, rtol=1e-4, atol=1e-30)
    (gradient,), (expected,) = (torch.autograd.grad(v.sum(), z) for v, z in ((value, here), (reference, exact)))
    if size < 1:  # where the probabilities are all alike, so that no gradient is small against its parts
        assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-8)
    assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sharpness", [1.0, 10.0, 100.0])
def test_soft_margin_bounds_the_margin_from_above(sharpness: float) -> None:
    scores, y = torch.randn(300, 6, dtype=torch.float64).softmax(1), torch.randint(0, 6, (300,))
    excess = soft_margin(scores, y, sharpness) - margin(scores, y)
    assert (excess >= 0).all()
    assert (excess <= torch.tensor(5.0).log() / sharpness + 1e-12).all()


def test_a_softmax_weighted_mean_calls_a_wrong_image_right_and_ours_does_not() -> None:
    """The authors' soft maximum lies below the maximum, so a bound built on it can hold for a misclassified image."""
    p = torch.tensor([[0.40, 0.37, *[0.23 / 8] * 8]], dtype=torch.float64)
    y = torch.tensor([1])
    rivals = p.clone().scatter(1, y[:, None], 0.0)
    boltzmann = ((10 * rivals).softmax(1) * rivals).sum(1) - p[:, 1]
    assert margin(p, y).item() > 0
    assert boltzmann.item() < 0
    assert soft_margin(p, y).item() > 0


def test_cross_entropy_is_per_image_and_single_precision_at_least() -> None:
    logits, y = torch.randn(4, 3, dtype=torch.bfloat16), torch.tensor([0, 1, 2, 0])
    losses = cross_entropy(logits, y)
    assert losses.dtype == torch.float32
    assert_close(losses, -logits.float().log_softmax(1)[range(4), y])


@pytest.mark.parametrize("topk", [0, 4])
def test_impossible_top_k_is_refused(topk: int) -> None:
    with pytest.raises(ConfigError, match=r"topk must be from 1 to 3 \(the model has 4 classes\)"):
        margin(torch.randn(2, 4), torch.tensor([0, 1]), topk)


def test_soft_margin_needs_a_positive_sharpness() -> None:
    with pytest.raises(ConfigError, match="positive"):
        soft_margin(torch.randn(2, 4), torch.tensor([0, 1]), 0.0)
