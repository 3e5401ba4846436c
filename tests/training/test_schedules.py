"""Schedules against closed forms."""

from math import cos, pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradreg.runs.schedules import Constant, Linear, OneCycle, Piecewise


def test_the_papers_cifar_rates_change_exactly_at_their_epochs() -> None:
    """lr(e) = 0.1, ×0.2 at 60, 120 and 160: not an epoch early, as a scheduler stepped at the wrong end makes it."""
    schedule = Piecewise((60, 120, 160), 0.2)
    rates = [0.1 * schedule(epoch, 200) for epoch in (0, 59.999, 60, 119.999, 120, 159.999, 160, 199.999)]
    assert rates == pytest.approx([0.1, 0.1, 0.02, 0.02, 0.004, 0.004, 0.0008, 0.0008])


def test_the_papers_imagenet_rates() -> None:
    knots = ((0, 0.25), (8, 0.5), (15, 0.0625), (15, 0.1), (25, 0.01), (28, 0.001), (28, 6.25e-4), (29, 6.25e-5))
    schedule = Linear(knots)
    expected = {0: 0.25, 4: 0.375, 8: 0.5, 11.5: 0.28125, 15: 0.1, 20: 0.055, 25: 0.01, 28: 6.25e-4, 29: 6.25e-5}
    for epoch, rate in expected.items():
        assert schedule(epoch, 29) == pytest.approx(rate)
    assert schedule(14.999999, 29) == pytest.approx(0.0625, rel=1e-4)
    assert Linear(((2, 0.5), (4, 1.0)))(0, 10) == 0.5
    assert Linear(((2, 0.5), (4, 1.0)))(9, 10) == 1.0


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 300))
def test_one_cycle(share: float, epochs: int) -> None:
    schedule = OneCycle(warmup=0.3, start=0.04, end=0.01)
    factor = schedule(share * epochs, epochs)
    if share < 0.3:
        expected = 1 + (0.04 - 1) * (1 + cos(pi * share / 0.3)) / 2
    else:
        expected = 0.01 + (1 - 0.01) * (1 + cos(pi * (share - 0.3) / 0.7)) / 2
    assert factor == pytest.approx(expected, abs=1e-9)
    assert 0.01 <= factor <= 1


def test_one_cycle_without_warmup_and_constant() -> None:
    assert OneCycle(warmup=0)(0, 10) == 1
    assert OneCycle(warmup=0)(10, 10) == pytest.approx(0)
    assert Constant()(3.7, 10) == 1
