"""Fresh draws of a randomised model against the normal distribution that it draws from."""

from math import erf, sqrt

import pytest
import torch
from torch import Tensor, nn

from gradreg import Averaged
from gradreg.attacks.fresh import fresh_answers, fresh_draws_of

SIGMA, DRAWS, IMAGES = 0.3, 9, 40


class NoisyScore(nn.Module):
    """Two classes by one score, the mean pixel less a half, plus normal noise of a known width on a logit."""

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1).mean(1) - 0.5 + SIGMA * torch.randn(len(x), dtype=x.dtype)
        return torch.stack([torch.zeros_like(score), score], 1)


def phi(z: float) -> float:
    return (1 + erf(z / sqrt(2))) / 2


@pytest.mark.parametrize("score", [-0.1, 0.15])
def test_shares_are_those_of_the_normal_distribution(score: float) -> None:
    """With label 1, a draw misclassifies that score with probability Φ(−score/σ), the mean of d with Φ(−√d score/σ).

    Draws of different images are independent, so counts are binomial.
    """
    clean = torch.rand(IMAGES, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    images, y = torch.full((IMAGES, 1, 2, 2), 0.5 + score), torch.ones(IMAGES, dtype=torch.int64)
    model = Averaged(NoisyScore(), draws=DRAWS, of="logits")
    found = fresh_answers(model, clean, y, images, 1)
    assert found is not None
    for values, trials, p in (
        (found.share, IMAGES * DRAWS, phi(-score / SIGMA)),
        (found.wrong, IMAGES, phi(-score * sqrt(DRAWS) / SIGMA)),
    ):
        assert abs(float(values.double().mean()) - p) < 3.5 * sqrt(p * (1 - p) / trials)


def test_other_models_have_none() -> None:
    x, y = torch.rand(2, 1, 2, 2), torch.zeros(2, dtype=torch.int64)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    assert fresh_draws_of(model) == 0
    assert fresh_answers(model, x, y, x, 1) is None
