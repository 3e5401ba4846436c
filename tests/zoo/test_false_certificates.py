"""Certificates of classifiers whose smoothed radius is known: beyond it no more often than α allows."""

import pytest
from known_radii import KNOWN, false_certificates
from scipy.stats import binom

# So rarely may a campaign fail by chance, if every certificate is wrong with probability α.
_CHANCE = 1e-6


@pytest.mark.parametrize("method", ["sequential", "cohen"])
@pytest.mark.parametrize("name", KNOWN)
def test_no_more_than_alpha_allows(name: str, method: str) -> None:
    """A large α, so that few images tell."""
    certified, wrong = false_certificates(name, 400, 0.12, 0, n=300, alpha=0.05, method=method)
    assert certified > 200
    assert wrong <= binom.isf(_CHANCE, certified, 0.05)


def test_the_count_sees_certificates_that_are_too_large() -> None:
    """A limit at ten times the α that is stated would not pass."""
    certified, wrong = false_certificates("half-space, worst distances", 2000, 0.12, 0, n=300, alpha=0.5)
    assert wrong > binom.isf(_CHANCE, certified, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1e-3, 1e-7])
@pytest.mark.parametrize("method", ["sequential", "cohen"])
@pytest.mark.parametrize("name", KNOWN)
def test_the_campaign(name: str, method: str, alpha: float) -> None:
    """More than 10,000 certified images each; `pytest -s` prints the figures of docs/reliability.md."""
    certified, wrong = false_certificates(name, 13_000, 0.12, 1, n=2000, alpha=alpha, method=method)
    print(f"\n{name}, {method}, α = {alpha:g}: {wrong} of {certified} certificates are false")
    assert certified >= 10_000
    assert wrong <= binom.isf(_CHANCE, certified, alpha)
