"""Methods of norms that users call: odd radii are refused, and gradreg's own calls go unchecked."""

import pytest
import torch
from torch import Tensor

from gradreg.errors import GradregError
from gradreg.norms import L1, L2, Linf, Pixelwise, Threat, Weighted, check, threat

X = torch.linspace(-1, 1, 4 * 48).view(4, 3, 4, 4)
NORMS = [L1(), L2(), Linf(), Pixelwise(), Weighted("l2", 2.0)]
RADII = {
    "not a number": torch.tensor([0.1, torch.nan, 0.1, 0.1]),
    "infinite": torch.tensor([0.1, torch.inf, 0.1, 0.1]),
    "negative": torch.tensor([0.1, -0.1, 0.1, 0.1]),
    "too few": torch.tensor([0.1, 0.1]),
    "of pixels": torch.full_like(X, 0.1),
    "whole numbers": torch.ones(4, dtype=torch.int64),
}


@pytest.mark.parametrize("norm", NORMS, ids=repr)
@pytest.mark.parametrize("name", RADII)
def test_odd_radii_are_refused(norm: Threat, name: str) -> None:
    with pytest.raises(GradregError, match="radius must be"):
        norm.project(X, RADII[name])
    with pytest.raises(GradregError, match="radius must be"):
        norm.sample(X, generator=torch.Generator().manual_seed(0), radius=RADII[name])


@pytest.mark.parametrize("norm", NORMS, ids=repr)
def test_one_radius_is_as_one_for_each(norm: Threat) -> None:
    for radius in (torch.full((4,), 0.3), torch.full((4, 1, 1, 1), 0.3), torch.tensor(0.3)):
        assert torch.allclose(norm.project(X, radius), norm.project(X, 0.3))


class Own(L2):
    """Written by a user; it takes whatever an attack passes to it."""

    def project(self, v: Tensor, radius: float | Tensor) -> Tensor:
        return threat("l2").project(v, radius)


def test_a_norm_of_ones_own_is_checked_too_but_not_when_gradreg_calls_it() -> None:
    own = Own()
    check(own, X)
    with pytest.raises(GradregError, match="radius must be at least 0"):
        own.project(X, -1.0)
    inside = {"__name__": "gradreg.attacks.any", "own": own, "x": X, "radius": RADII["infinite"]}
    assert torch.equal(eval("own.project(x, radius)", inside)[1], X[1])
