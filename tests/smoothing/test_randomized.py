"""The randomised limit covers exactly, and Cohen's procedure by it gives larger radii with the same guarantee."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom, norm
from torch import Tensor

from bench.limits import expected_radius
from gradreg.errors import ConfigError, DataError
from gradreg.smoothing import Certificates, certify, clopper_pearson_lower, frequencies, merge, randomized_lower

SIGMA = 0.25


@pytest.mark.parametrize("n", [1, 5, 12])
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_the_limit_is_too_high_with_probability_alpha_exactly(n: int, alpha: float) -> None:
    """By enumeration of the counts. For each, the limit falls with u, and exceeds p up to a u that is found exactly."""
    counts = np.arange(n + 1)
    for p in (0.02, 0.3, 0.5, 0.77, 0.95, 0.999):
        weight = binom.pmf(counts, n, p)
        critical = np.clip((alpha - binom.sf(counts, n, p)) / weight, 0, 1)
        assert float(weight @ critical) == pytest.approx(alpha)
        for count, u in zip(counts, critical, strict=True):
            if u > 1e-6:
                assert float(randomized_lower(count, n, alpha, u * (1 - 1e-6))) > p - 1e-9
            if u < 1 - 1e-6:
                assert float(randomized_lower(count, n, alpha, u + 1e-6 * (1 - u))) < p + 1e-9
        # The same by 1,000 values of u for each count.
        draws = (np.arange(1000) + 0.5) / 1000
        high = randomized_lower(counts[:, None], n, alpha, draws[None]) > p
        assert float(weight @ high.mean(1)) == pytest.approx(alpha, abs=1e-3)


def test_between_the_limits_of_this_count_and_the_next() -> None:
    hits, draws = np.arange(1, 1000), np.linspace(0, 1, 7)[:, None]
    found = randomized_lower(hits, 1000, 0.001, draws)
    assert np.all(np.diff(found, axis=0) <= 1e-12)
    np.testing.assert_allclose(found[-1], clopper_pearson_lower(hits, 1000, 0.001), rtol=1e-9)
    np.testing.assert_allclose(found[0], beta.ppf(0.001, hits + 1, 1000 - hits), rtol=1e-9)
    assert randomized_lower(1000, 1000, 0.001, [0.0005, 0.5]).tolist() == pytest.approx([1.0, 0.002**0.001])
    assert randomized_lower(0, 10, 0.05, [0.05, 0.02]).tolist() == pytest.approx([0.0, 1 - (1 - 0.03 / 0.98) ** 0.1])
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(ConfigError, match="uniform must be numbers from 0 to 1"):
            randomized_lower(3, 10, 0.05, wrong)
    with pytest.raises(ConfigError, match="one per count"):
        randomized_lower([3, 4], 10, 0.05, [0.1, 0.2, 0.3])


class Half(torch.nn.Module):
    """Two classes on either side of a plane: the distance to it is the radius."""

    def __init__(self) -> None:
        super().__init__()
        w = torch.randn(12)
        self.w = torch.nn.Buffer(w / w.norm())

    def forward(self, x: Tensor) -> Tensor:
        value = (x.flatten(1) - 0.5) @ self.w
        return torch.stack([-value, value], 1)

    def images_at(self, distance: float, count: int) -> Tensor:
        x = 0.5 + 0.1 * torch.rand(count, 12)
        moved: Tensor = x + (distance - self(x)[:, 1])[:, None] * self.w
        return moved.view(count, 3, 2, 2)


def test_radii_are_larger_and_exceed_the_distance_as_often_as_promised() -> None:
    half, alpha = Half().eval(), 0.2
    images = half.images_at(0.2, 1500)
    usual, randomized = (
        certify(half, images, sigma=SIGMA, alpha=alpha, n=20, n0=20, method="cohen", randomized=on)
        for on in (False, True)
    )
    assert bool((randomized.radius >= usual.radius - 1e-12).all())
    assert float(randomized.radius.mean()) > 1.05 * float(usual.radius.mean())
    rate = float((randomized.radius > 0.2 + 1e-6).double().mean())
    spread = (alpha * (1 - alpha) / 1500) ** 0.5
    # A u of at least 2α costs some of it: radii are finite.
    assert rate <= alpha + 3 * spread
    assert bool(randomized.radius.isfinite().all())
    again = certify(half, images, sigma=SIGMA, alpha=alpha, n=20, n0=20, method="cohen", randomized=True, batch_size=7)
    assert torch.equal(again.radius, randomized.radius)
    with pytest.raises(ConfigError, match=r'randomized=True needs method="cohen"'):
        certify(half, images, sigma=SIGMA, randomized=True)


def test_frequencies_are_those_of_the_noisy_images(tmp_path: Path) -> None:
    """p_A = Φ(distance/σ), here of two distances; the sequential test estimates it from what it drew."""
    half = Half().eval()
    images = torch.cat([half.images_at(0.1, 5), half.images_at(0.4, 5), half.images_at(-0.4, 5)])
    y = torch.ones(15, dtype=torch.int64)
    found = certify(half, images, sigma=SIGMA, method="cohen", n=20_000)
    expected = torch.tensor([norm.cdf(0.1 / SIGMA)] * 5 + [norm.cdf(0.4 / SIGMA)] * 10, dtype=torch.float64)
    torch.testing.assert_close(found.frequency, expected, rtol=0, atol=0.01)
    assert frequencies(found, y, [0.5, 0.9, 0.99]) == pytest.approx([10 / 15, 5 / 15, 0])
    found.save(tmp_path / "one.safetensors")
    again = Certificates.load(tmp_path / "one.safetensors")
    assert torch.equal(again.frequency, found.frequency)
    parts = [certify(half, images, sigma=SIGMA, method="cohen", n=20_000, shard=(rank, 2)) for rank in (0, 1)]
    assert torch.equal(merge(parts).frequency, found.frequency)
    short = certify(half, images, sigma=SIGMA, radii=[0.25])
    assert float((short.frequency - expected).abs().max()) < 0.2
    old = Certificates(found.prediction, found.radius, found.samples, found.index, found.settings, found.images)
    with pytest.raises(DataError, match="of before frequencies were kept"):
        frequencies(old, y, [0.5])


def test_the_measurement_of_limits_is_an_expectation() -> None:
    """Against 20,000 draws of a count and of u."""
    rng = np.random.default_rng(0)
    hits, u = rng.binomial(60, 0.97, 20_000), rng.uniform(size=20_000)
    usual, randomized = (expected_radius(60, 0.97, 0.05, on) for on in (False, True))
    drawn = np.maximum(norm.ppf(clopper_pearson_lower(hits, 60, 0.05)), 0)
    assert usual == pytest.approx(drawn.mean(), rel=0.01)
    drawn = np.maximum(norm.ppf(randomized_lower(hits, 60, 0.05, np.maximum(u, 0.1))), 0)
    assert randomized == pytest.approx(drawn.mean(), rel=0.01)
    assert randomized > 1.01 * usual
