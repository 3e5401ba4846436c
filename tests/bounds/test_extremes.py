"""The extreme value fits: recovery, equivariance, and the inputs on which other fits fail (certify.md §1.5)."""

from time import perf_counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import genextreme

from gradreg.bounds import BoundsError, block_maxima, extreme_value, fit_lmoments
from gradreg.bounds.extremes import FitMethod
from gradreg.errors import ConfigError

SHAPES = [-0.3, -0.1, 0.0, 0.1, 0.3]
METHODS: list[FitMethod] = ["lmoments", "mle"]
Floats = NDArray[np.float64]


def draw(shape: float, size: int | tuple[int, ...], seed: int = 0) -> Floats:
    """From a GEV with location 2 and scale ½; scipy's shape parameter is −ξ."""
    return np.asarray(genextreme.rvs(-shape, 2.0, 0.5, size, random_state=np.random.default_rng(seed)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", METHODS)
def test_a_large_sample_gives_the_parameters_back(shape: float, method: FitMethod) -> None:
    found = extreme_value(draw(shape, 20_000), 32, method=method, bootstrap=10)
    assert found.shape == pytest.approx(shape, abs=0.03)
    assert fit_lmoments(draw(shape, 20_000)).location == pytest.approx(2.0, abs=0.02)
    assert fit_lmoments(draw(shape, 20_000)).scale == pytest.approx(0.5, abs=0.02)
    assert found.flags == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_quantile_is_right_on_average(shape: float) -> None:
    exact = float(genextreme.isf(0.001, -shape, 2.0, 0.5))
    estimates = fit_lmoments(draw(shape, (400, 200))).quantile(0.001)
    assert np.median(estimates) == pytest.approx(exact, rel=0.05)


def test_the_shape_has_the_textbooks_sign() -> None:
    """ξ > 0 is the heavy tail; scipy calls it −ξ."""
    heavy = fit_lmoments(np.asarray(genextreme.rvs(-0.2, size=50_000, random_state=np.random.default_rng(1))))
    assert heavy.shape == pytest.approx(0.2, abs=0.02)
    ours, theirs = heavy.quantile(0.001), genextreme.isf(0.001, -heavy.shape, heavy.location, heavy.scale)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("shape", [0.0, 1e-12, -1e-12, 1e-6, 0.3, -0.3])
def test_quantiles_agree_with_scipys_near_gumbel_too(shape: float) -> None:
    from gradreg.bounds import GEV

    fit = GEV(np.array(1.0), np.array(2.0), np.array(shape))
    assert float(fit.quantile(0.001)) == pytest.approx(float(genextreme.isf(0.001, -shape, 1.0, 2.0)), rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unit", [1e-200, 1e-6, 1e6, 1e200])
def test_the_same_data_in_other_units_gives_the_same_answer(method: FitMethod, unit: float) -> None:
    data = draw(0.1, 100)
    one, other = extreme_value(data, 32, method=method), extreme_value(data * unit, 32, method=method)
    assert other.value / unit == pytest.approx(one.value, rel=1e-9)
    assert other.upper / unit == pytest.approx(one.upper, rel=1e-9)
    shifted = extreme_value(data + 100, 32, method=method)
    assert shifted.value - 100 == pytest.approx(one.value, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_upper_limit_covers_the_truth_most_of_the_time(method: FitMethod) -> None:
    exact = float(genextreme.isf(0.001, 0.1, 2.0, 0.5))
    times = 60 if method == "mle" else 200
    found = [extreme_value(draw(-0.1, 100, seed), 32, method=method, bootstrap=200) for seed in range(times)]
    assert np.mean([one.upper >= exact for one in found]) > 0.84
    assert all(one.upper >= one.value >= one.largest for one in found)


ODD_INPUTS: dict[str, tuple[Any, set[str]]] = {
    "all equal": (np.full(50, 0.7), {"degenerate", "few-distinct"}),
    "all zero": (np.zeros(50), {"degenerate", "few-distinct"}),
    "three": (np.array([1.0, 1.1, 1.5]), {"few-distinct"}),
    "tiny": (draw(-0.1, 100) * 1e-6, set()),
    "huge": (draw(-0.1, 100) * 1e6, set()),
    "half zeros": (np.concatenate([np.zeros(50), draw(-0.1, 50)]), set()),
    "an outlier": (np.append(draw(-0.1, 99), 40.0), set()),
    "a resampled pool": (np.random.default_rng(0).choice(draw(-0.1, 12), 100), {"few-distinct"}),
    "an infinity": (np.append(draw(0.0, 99), np.inf), {"infinite"}),
    "a NaN": (np.append(draw(0.0, 99), np.nan), {"infinite"}),
}


@pytest.mark.parametrize("name", ODD_INPUTS)
@pytest.mark.parametrize("method", METHODS)
def test_odd_inputs_give_sane_and_flagged_answers(name: str, method: FitMethod) -> None:
    data, flags = ODD_INPUTS[name]
    found = extreme_value(data, 32, method=method)
    assert flags <= set(found.flags)
    if "infinite" in flags:
        assert found.value == np.inf
        return
    spread = float(np.ptp(data))
    assert data.max() <= found.value <= found.upper
    assert found.value <= data.max() + 20 * spread


def test_a_heavy_tail_is_flagged() -> None:
    assert "steep" in extreme_value(draw(0.9, 500), 32).flags


def test_ten_thousand_fits_take_well_under_a_tenth_of_a_second() -> None:
    data = draw(0.0, (10_000, 100))
    fit_lmoments(data[:2])
    times = []
    for _ in range(5):
        start = perf_counter()
        fit_lmoments(data).quantile(0.001)
        times.append(perf_counter() - start)
    assert min(times) < 0.1


def test_many_fits_are_the_fits_one_by_one() -> None:
    data = draw(0.1, (5, 60))
    together = fit_lmoments(data).quantile(0.01)
    np.testing.assert_allclose(together, [fit_lmoments(row).quantile(0.01) for row in data], rtol=1e-12)


def test_block_maxima_leave_out_what_fills_no_block() -> None:
    values = np.arange(2 * 65, dtype=float).reshape(2, 65)
    assert block_maxima(values, 3).shape == (2, 21)
    np.testing.assert_array_equal(block_maxima(values, 3)[0, :3], [2, 5, 8])


def test_bad_input_is_refused_in_one_sentence() -> None:
    with pytest.raises(BoundsError, match=r"100 images make 3 blocks of 32.*at least 640 images, or block_size=5"):
        block_maxima(np.zeros(100), 32)
    with pytest.raises(BoundsError, match="at least 3 block maxima; got 2"):
        extreme_value(np.ones(2), 32)
    with pytest.raises(ConfigError, match=r"p must be above 0 and below 1 .* got 1\.5"):
        extreme_value(np.ones(20), 32, p=1.5)
    with pytest.raises(ConfigError, match="'moments'"):
        extreme_value(np.ones(20), 32, method="moments")  # type: ignore[arg-type]
