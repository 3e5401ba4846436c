"""Calibrated bounds: the promise by simulation and by counting, and what it is not given for."""

from fractions import Fraction
from itertools import combinations
from math import ceil, comb
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.attacks import attack
from gradreg.bounds import (
    BoundsError,
    Calibration,
    Regularity,
    bounds,
    chance_of,
    conformal_scale,
    cross_calibrated,
    estimate_regularity,
    least_images,
    violations,
)
from gradreg.bounds.calibration import rank
from gradreg.errors import ConfigError, DataError


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def calibration(n: int, alpha: float = 0.05) -> Calibration:
    return Calibration(alpha, 1.0, 1.0, 1.0, "standard", n, 0)


def test_the_rank_is_exact_where_floats_are_not() -> None:
    for alpha in (0.05, 0.1, 0.01, 0.3, 0.07):
        exact = Fraction(str(alpha))
        for n in range(1, 400):
            assert rank(n, alpha) == ceil((n + 1) * (1 - exact))
        assert rank(least_images(alpha), alpha) <= least_images(alpha)
        assert rank(least_images(alpha) - 1, alpha) > least_images(alpha) - 1
    assert least_images(0.05) == 19


def test_a_fresh_image_is_covered_with_exactly_the_promised_probability() -> None:
    """By enumeration: of n + 1 different multiples each is the fresh one equally often; rank/(n + 1) of them hold."""
    n, alpha = 9, 0.2
    multiples = uniform(n + 1)
    held = 0
    for fresh in range(n + 1):
        others = torch.cat([multiples[:fresh], multiples[fresh + 1 :]])
        held += float(multiples[fresh]) <= conformal_scale(others, torch.ones(n), alpha)
    assert held == rank(n, alpha) == 8


def test_coverage_over_many_splits_is_within_the_binomial() -> None:
    """Bounds that are any function of the distance and noise, distances of any law, some unbroken, some misclassified.

    Of 400 splits with 60 calibration and 60 fresh images each, the mean violation rate is α but for sampling.
    """
    source = torch.Generator().manual_seed(1)
    rates = []
    for _ in range(400):
        distance = torch.rand(120, generator=source, dtype=torch.float64).tan()
        bound = distance.sqrt() * torch.rand(120, generator=source, dtype=torch.float64)
        kind = torch.rand(120, generator=source)
        distance = distance.where(kind > 0.1, torch.inf).where(kind < 0.9, 0)
        bound = bound.where(distance > 0, 0)
        scale = conformal_scale(bound[:60], distance[:60], 0.1)
        rates.append(violations(bound[60:] / scale, distance[60:], kind="calibrated").rate)
    mean, error = torch.tensor(rates).mean(), torch.tensor(rates).std() / 20
    assert mean - 3 * error < 0.1
    # Not by far, either: the quantile of 48 images allows 1/49 less than α.
    assert mean + 3 * error > 0.1 - 1 / 49


def test_the_chance_of_violations_counts_the_orders_of_images() -> None:
    """Every choice of places for the calibration images among all is equally likely."""
    for n, alpha, images in ((4, 0.2, 5), (9, 0.1, 4), (5, 0.4, 3)):
        k = rank(n, alpha)
        more = [0] * (images + 1)
        for places in combinations(range(n + images), n):
            more[n + images - 1 - places[k - 1] - (n - k)] += 1
        for violated in range(images + 1):
            exact = sum(more[violated:]) / comb(n + images, n)
            assert chance_of(violated, images, calibration(n, alpha)) == pytest.approx(exact)
    assert chance_of(0, 10, calibration(19)) == 1
    # With many calibration images it is the binomial's: 30 of 200 where 10 are expected.
    assert chance_of(30, 200, calibration(1999)) < 1e-5
    assert chance_of(10, 200, calibration(1999)) > 0.3


def test_each_half_is_calibrated_by_the_other() -> None:
    bound, distance = uniform(100), 1 + uniform(100, seed=1)
    found = cross_calibrated(bound, distance, 0.1)
    assert_close(found[::2], bound[::2] / conformal_scale(bound[1::2], distance[1::2], 0.1))
    assert_close(found[1::2], bound[1::2] / conformal_scale(bound[::2], distance[::2], 0.1))


def test_ties_and_unbroken_images_only_make_the_bound_smaller() -> None:
    distance = torch.ones(40, dtype=torch.float64)
    assert conformal_scale(torch.full((40,), 0.5, dtype=torch.float64), distance, 0.1) == 0.5
    distance[:5] = torch.inf
    bound = torch.linspace(0.1, 1, 40, dtype=torch.float64)
    # Five multiples become 0, and the same rank is a smaller multiple's no more: they were the smallest anyway.
    assert conformal_scale(bound, distance, 0.1) == float(bound[rank(40, 0.1) - 1])
    distance[-5:] = torch.inf
    assert conformal_scale(bound, distance, 0.1) == float(bound[rank(40, 0.1) - 1 - 5])


def test_too_few_images_are_refused() -> None:
    with pytest.raises(
        BoundsError, match=r"alpha = 0\.05 needs at least 19 correctly classified .*; got 18\. Pass more"
    ):
        conformal_scale(torch.ones(30), torch.tensor([1.0] * 18 + [0.0] * 12), 0.05)
    with pytest.raises(BoundsError, match=r"broke only 1 of 30 calibration images.*stronger attacks"):
        conformal_scale(torch.ones(30), torch.tensor([1.0] + [torch.inf] * 29), 0.1)
    with pytest.raises(ConfigError, match="alpha must be above 0 and below 1"):
        conformal_scale(torch.ones(30), torch.ones(30), 1.0)


@pytest.fixture
def net() -> nn.Module:
    found = nn.Sequential(nn.Flatten(), nn.Linear(48, 24), nn.Tanh(), nn.Linear(24, 4)).double().eval()
    for weight in found.parameters():
        nn.init.normal_(weight, std=0.5)
    # All classes are predicted.
    found.get_parameter("3.bias").data -= found(0.3 + 0.4 * uniform(500, 3, 4, 4, seed=9)).mean(0).detach()
    return found


def draw(net: nn.Module, images: int, seed: int) -> tuple[Tensor, Tensor]:
    x = 0.3 + 0.4 * uniform(images, 3, 4, 4, seed=seed)
    return x, net(x).argmax(1)


REACH = [0.01 * step for step in range(1, 81)]


@pytest.mark.parametrize("method", ["local", "ascent"])
def test_bounds_are_calibrated_on_other_images(method: str, net: nn.Module, tmp_path: Path) -> None:
    held, fresh = draw(net, 80, 1), draw(net, 120, 2)
    data = fresh if method == "local" else draw(net, 60, 3)
    known = estimate_regularity(
        net, data, method=method, eps=REACH, block_size=3, alpha=0.1, calibration=held, attacks="quick"  # type: ignore[arg-type]
    )  # fmt: skip
    made = known.calibration
    assert made is not None
    assert (made.alpha, made.n, made.unbroken, made.attacks) == (0.1, 80, 0, "quick")
    found = bounds(net, *fresh, known)
    assert found.calibrated is not None
    distance = attack(net, *fresh, attacks="quick").distance
    fared = violations(found.calibrated, distance, kind="calibrated")
    assert chance_of(round(fared.rate * fared.n), fared.n, made) > 0.01
    # It is the promise that stretches or shrinks the bound, and only so far: some images do violate it.
    assert fared.worst_ratio > 0.97
    assert fared.tightness > (0.9 if method == "local" else 0.3)
    scales = [made.scale, made.omega_scale, made.lipschitz_scale]
    assert scales[0] == scales[1] if method == "ascent" else scales[0] > scales[1]
    known.save(tmp_path / "known.safetensors")
    again = Regularity.load(tmp_path / "known.safetensors")
    assert again.calibration == made
    assert again.calibration is not None
    assert torch.equal(again.calibration.keys, made.keys)
    assert torch.equal(bounds(net, *fresh, again).calibrated, found.calibrated)  # type: ignore[arg-type]


def test_a_calibration_serves_other_images_but_not_its_own(net: nn.Module) -> None:
    held, fresh, later = (draw(net, 60, seed) for seed in (1, 2, 3))
    given = {"method": "local", "eps": REACH}
    first = estimate_regularity(net, fresh, **given, alpha=0.1, calibration=held, attacks="quick")  # type: ignore[arg-type]
    second = estimate_regularity(net, later, **given, calibration=first.calibration)  # type: ignore[arg-type]
    assert second.calibration == first.calibration
    assert bounds(net, *later, second).calibrated is not None
    own = estimate_regularity(net, held, **given, calibration=first.calibration)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="60 of 60 images were used to calibrate"):
        bounds(net, *held, own)
    with pytest.raises(ConfigError, match="calibration must be of bounds that were estimated in the same way"):
        estimate_regularity(net, later, method="local", eps=REACH, steps=3, calibration=first.calibration)
    other = nn.Sequential(nn.Flatten(), nn.Linear(48, 4)).double().eval()
    with pytest.raises(ConfigError, match="calibration must be of bounds that were estimated in the same way"):
        estimate_regularity(other, later, **given, calibration=first.calibration)  # type: ignore[arg-type]


def test_progress_goes_on_through_all_stages(net: nn.Module) -> None:
    told: list[tuple[int, int]] = []
    estimate_regularity(
        net, draw(net, 40, 1), method="local", eps=REACH, alpha=0.1, calibration=draw(net, 30, 2), attacks=["deepfool"],
        batch_size=10, progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {total for _, total in told} == {100}
    assert told[-1] == (100, 100)


def test_without_images_to_calibrate_on_half_of_the_data_are(net: nn.Module) -> None:
    """The images that L and ω were estimated on are none of those that s is: the score must not have seen them."""
    data = draw(net, 120, 1)
    known = estimate_regularity(net, data, eps=REACH, block_size=3, alpha=0.1, attacks="quick")
    assert known.calibration is not None
    assert known.calibration.n == 60
    assert len(known.keys) == 60
    assert not bool(torch.isin(known.keys, known.calibration.keys).any())
    with pytest.raises(ConfigError, match='alpha with method="local" needs calibration='):
        estimate_regularity(net, data, method="local", alpha=0.1)
    with pytest.raises(ConfigError, match="calibration= needs alpha="):
        estimate_regularity(net, data, method="local", calibration=data)
    with pytest.raises(BoundsError, match=r"alpha = 0\.05 needs at least 19 .*; got 10"):
        estimate_regularity(net, data, method="local", eps=REACH, alpha=0.05, calibration=draw(net, 10, 4))
