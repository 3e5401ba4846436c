"""The sequential test's error, counted exactly by a dynamic program of its own, and its limits against scipy's."""

from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.stats import binom, binomtest, norm

from gradreg.smoothing import clopper_pearson, clopper_pearson_lower
from gradreg.smoothing.intervals import certified_radius, required_probability
from gradreg.smoothing.rules import cohen, sequential
from gradreg.smoothing.sequential import _look_sizes, make_plan

Floats = NDArray[np.float64]


def crossing_probability(p: float, looks: NDArray[np.int64], boundary: NDArray[np.int64]) -> float:
    """P(count ≥ boundary at some look), one sample at a time with Python's own numbers."""
    alive = {0: 1.0}
    crossed, drawn = 0.0, 0
    for size, limit in zip(looks.tolist(), boundary.tolist(), strict=True):
        new = size - drawn
        step = [comb(new, hits) * p**hits * (1 - p) ** (new - hits) for hits in range(new + 1)]
        following: dict[int, float] = {}
        for count, mass in alive.items():
            for hits, chance in enumerate(step):
                following[count + hits] = following.get(count + hits, 0.0) + mass * chance
        crossed += sum(mass for count, mass in following.items() if count >= limit)
        alive = {count: mass for count, mass in following.items() if count < limit}
        drawn = size
    return crossed


@pytest.mark.parametrize("p", [1 / 3, 0.5, 0.69, 0.84, 0.95])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_the_error_is_at_most_alpha_and_hardly_less(p: float, alpha: float) -> None:
    plan = make_plan(np.array([p]), 250, alpha)
    error = crossing_probability(p, plan.looks, plan.reject[0])
    assert error <= alpha
    assert error > (0.4 if p > 0.9 else 0.75) * alpha
    # Under a smaller p it is smaller still.
    assert crossing_probability(p - 0.03, plan.looks, plan.reject[0]) < error


@pytest.mark.parametrize("p", [0.5, 0.84, 0.9987])
def test_the_error_with_all_the_samples(p: float) -> None:
    """n = 100,000, by convolutions of whole distributions."""
    alpha = 0.001
    plan = make_plan(np.array([p]), 100_000, alpha)
    assert len(plan.looks) == 24
    alive, drawn, crossed = np.ones(1), 0, 0.0
    for size, limit in zip(plan.looks.tolist(), plan.reject[0].tolist(), strict=True):
        alive = fftconvolve(alive, binom.pmf(np.arange(size - drawn + 1), size - drawn, p))
        crossed += float(alive[limit:].sum())
        alive = alive[:limit]
        drawn = size
    assert 0.9 * alpha < crossed <= alpha


def test_giving_up_loses_at_most_alpha_of_what_holds() -> None:
    """By symmetry: a count that would be rejected as too low for the probability itself."""
    plan = make_plan(np.array([0.84]), 250, 0.01)
    misses = crossing_probability(1 - 0.84, plan.looks, plan.looks - plan.give_up[0])
    assert misses <= 0.01


def test_boundaries_rise_with_the_radius() -> None:
    plan = make_plan(np.asarray(norm.cdf(np.arange(0, 3.8, 0.25))), 10_000, 0.001)
    assert (np.diff(plan.reject, axis=0) >= 0).all()
    assert (np.diff(plan.give_up, axis=0) >= 0).all()
    assert (plan.give_up < plan.reject).all()


def test_looks_are_geometric_and_end_at_n() -> None:
    looks = _look_sizes(100_000)
    assert (len(looks), looks[0], looks[-1]) == (24, 32, 100_000)
    assert _look_sizes(20) == (20,)
    assert _look_sizes(40)[-1] == 40


@pytest.mark.parametrize("true_radius", [0.0, 0.12, 0.25, 0.4])
def test_a_grid_of_radii_is_wrong_no_more_often_than_one(true_radius: float) -> None:
    """Simulated: at any true radius, some larger one is accepted with probability α at most."""
    alpha, sigma, times = 0.05, 0.25, 4000
    rule = sequential(sigma, alpha, 400, 1, np.arange(0, 0.6, 0.125))
    rng = np.random.default_rng(0)
    p = float(norm.cdf(true_radius / sigma))
    sizes = np.array(rule.sizes)
    counts = rng.binomial(np.diff(sizes, prepend=0), p, (times, len(sizes))).cumsum(1)
    wrong = 0
    for row in counts:
        best, done = -1, False
        for stage, hits in enumerate(row):
            best, done = rule.look(stage, int(hits), best)
            if done:
                break
        assert done
        # A radius that is exactly the true one counts as too large: its null holds.
        wrong += best >= 0 and rule.radii[best] >= true_radius - 1e-12
    assert wrong / times <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / times)


def test_one_radius_takes_a_tenth_of_the_samples_and_a_grid_a_quarter() -> None:
    """On radii spread as in Cohen's logs for σ = 0.25, without a loss of certified images (certify.md §3.2)."""
    rng = np.random.default_rng(0)
    share = rng.uniform(size=1500)
    knots, radii = [0, 0.10, 0.25, 0.40, 0.57, 0.73, 1], [-0.15, 0, 0.25, 0.5, 0.75, 0.94, 1.5]
    p = np.asarray(norm.cdf(np.interp(share, knots, radii) / 0.25))
    n = 100_000
    unused = np.zeros(len(p))
    fixed = cohen(0.25, 0.001, n, 1, None).radius(rng.binomial(n, p).astype(float), unused, unused)
    for grid, at_least in (([0.25], 10), ([0.5], 10), ([0.0, 0.25, 0.5, 0.75], 4)):
        rule = sequential(0.25, 0.001, n, 1, np.array(grid))
        sizes = np.array(rule.sizes)
        counts = rng.binomial(np.diff(sizes, prepend=0), p[:, None]).cumsum(1)
        samples, found = [], []
        for row in counts:
            best, done, stage = -1, False, -1
            while not done:
                stage += 1
                best, done = rule.look(stage, int(row[stage]), best)
            samples.append(sizes[stage])
            found.append(best)
        assert n / np.mean(samples) >= at_least
        for index, radius in enumerate(grid):
            assert np.mean(np.array(found) >= index) == pytest.approx(np.mean(fixed >= radius), abs=0.01)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (50, 100), (99_900, 100_000), (100_000, 100_000)])
def test_clopper_pearson_agrees_with_scipys(hits: int, n: int) -> None:
    theirs = binomtest(hits, n, alternative="greater").proportion_ci(0.999, method="exact").low
    assert float(clopper_pearson_lower(hits, n, 0.001)) == pytest.approx(theirs, rel=1e-10, abs=1e-15)
    both = binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, n) == pytest.approx((both.low, both.high), rel=1e-9, abs=1e-15)


def test_radius_and_probability_are_inverse() -> None:
    for topk in (1, 2, 5):
        radii = np.linspace(0, 1, 5)
        back = certified_radius(required_probability(radii, 0.5, topk), 0.5, topk)
        np.testing.assert_allclose(back, radii, atol=1e-12)
    assert required_probability(0.0, 0.5, 1) == pytest.approx(0.5)
    assert required_probability(0.0, 0.5, 4) == pytest.approx(0.2)
