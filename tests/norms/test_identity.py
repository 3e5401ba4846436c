"""Names: work in one norm is never taken for work in another."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.norms import (
    L2,
    THREATS,
    Linf,
    Mahalanobis,
    Pixelwise,
    Threat,
    Weighted,
    probe,
    reach_of,
    usual,
    usual_radii_of,
)  # fmt: skip
from own_norms import ThreeHalves, matrix, own_norms, weights


class Scaled(L2):
    """The l2 norm times a factor; what it depends on may be anything."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def norm(self, v: Tensor) -> Tensor:
        return float(self.factor) * super().norm(v)


class Doubled(L2):
    factor = 2.0


class Trebled(L2):
    factor = 3.0


def test_short_names_are_those_of_the_three_norms_alone() -> None:
    assert [t.name for t in THREATS.values()] == list(THREATS)
    assert L2().name == "l2"
    assert Linf().symbol == "l∞"
    assert Scaled(1.0).name != "l2"
    assert Scaled(1.0).symbol == "Scaled"


def test_names_can_stand_in_files_and_columns() -> None:
    for t in own_norms().values():
        assert re.fullmatch(r"[a-z0-9-]+", t.name)
    assert ThreeHalves().name.startswith("three-halves-")
    named = type("Größe", (ThreeHalves,), {})()
    assert re.fullmatch(r"[a-z0-9-]+", named.name)


def test_other_parameters_are_another_norm() -> None:
    w = weights()
    other = w.clone()
    other[0, 0, 0] *= 1 + 1e-6
    norms: list[Threat] = [
        Weighted("l2", w), Weighted("l2", other), Weighted("linf", w), Weighted(Weighted("l2", w), 1.0),
        Weighted(Scaled(1.0), w), Weighted(Scaled(2.0), w), Mahalanobis(matrix(48)), Mahalanobis(2 * matrix(48)),
        Mahalanobis(matrix(48)[None]), Pixelwise(), Pixelwise(axis=2), Scaled(1), Scaled(1.0), Scaled(True),
        Scaled("1"), Scaled(torch.ones(())), Scaled(torch.ones(1)), Scaled([1.0]), Scaled((1.0,)), Scaled({"a": 1.0}),
        Scaled({"a": 2.0}), Scaled(None), Scaled(torch.ones(2).numpy()), Scaled(nn.Linear(2, 2)), Scaled(abs),
        Scaled(repr), Doubled(), Trebled(), ThreeHalves(),
    ]  # fmt: skip
    names = [t.name for t in norms]
    assert len(set(names)) == len(names)


def test_the_same_parameters_are_the_same_norm() -> None:
    for one, two in zip(own_norms().values(), own_norms().values(), strict=True):
        assert one.name == two.name
    # How a norm is written, and where it is quoted, is no part of what it is.
    plain, shown = Weighted("l2", weights()), Weighted("l2", weights(), symbol="W", usual_radii=(1.0,), reach=3.0)
    assert plain.name == shown.name
    assert (shown.symbol, shown.usual_radii, shown.reach) == ("W", (1.0,), 3.0)


def test_a_name_does_not_change_with_use() -> None:
    t = Weighted("l2", weights())
    before = t.name
    t.project(torch.ones(2, 3, 4, 4), 0.5)
    t.sample(torch.ones(2, 3, 4, 4, dtype=torch.float64), 1.0, torch.Generator())
    assert t.name == before
    whole = Mahalanobis(matrix(48))
    before = whole.name
    whole.project(torch.ones(2, 3, 4, 4), 0.5)
    assert whole.name == before


def test_circular_attributes_have_a_name_too() -> None:
    t = Scaled(1.0)
    t.factor = {"self": t}
    held: list[Any] = []
    held.append(held)
    t.other = held  # type: ignore[attr-defined]
    assert t.name == t.name


def test_a_probe_shows_what_attributes_do_not() -> None:
    """Here the norm depends on a variable outside of it, so its name stays."""
    outside = [1.0]

    class Global(L2):
        def norm(self, v: Tensor) -> Tensor:
            return outside[0] * super().norm(v)

    like = torch.zeros(1, 3, 4, 4)
    name, before = Global().name, probe(Global(), like)
    outside[0] = 2.0
    assert Global().name == name
    assert_close(torch.tensor(probe(Global(), like)[:3]), 2 * torch.tensor(before[:3]))


def test_radii_of_a_norm_without_radii_are_as_long_as_those_of_l2() -> None:
    """For lp norms the rule gives about what the field uses: 8/255 in l∞ goes with 0.5 in l2 on CIFAR-10."""
    cifar = torch.zeros(1, 3, 32, 32)
    ones = Mahalanobis(torch.eye(3))
    assert usual_radii_of(ones, cifar) == (0.25, 0.5, 1.0)
    assert reach_of(ones, cifar) == 2.0
    largest = type("Largest", (Linf,), {"usual_radii": (), "reach": None})()
    assert usual(usual_radii_of(largest, cifar)) == pytest.approx(8 / 255, rel=0.1)
    assert usual_radii_of(ones, cifar, (0.75, 1.5)) == (0.75, 1.5)
    assert usual_radii_of(Weighted("linf", weights((3, 1, 1))), cifar) == THREATS["linf"].usual_radii
    assert usual((0.3,)) == 0.3
