"""A norm whose methods contradict each other is refused, by the method that is wrong."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gradreg import ConfigError
from gradreg.norms import L1, L2, Threat, Weighted, check, checked, per_image, threat
from own_norms import SumOfChannels, ThreeHalves

LIKE = torch.zeros(2, 3, 4, 4)


def broken(**methods: Any) -> Threat:
    """`ThreeHalves` with other methods."""
    made: Threat = type("Broken", (ThreeHalves,), methods)()
    return made


def l2(v: Tensor) -> Tensor:
    return threat("l2").norm(v)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"norm": lambda self, v: v.abs().sum()}, r"norm must return one number per image, shape \(4,\)"),
        ({"norm": lambda self, v: v.flatten(1).sum(1)}, "norm must be finite and above 0"),
        ({"norm": lambda self, v: l2(v).square()}, "norm must double when v is doubled"),
        ({"norm": lambda self, v: v.flatten(1).clamp(min=0).sum(1)}, "norm must double when v is doubled"),
        ({"norm": lambda self, v: v.flatten(1).abs().sqrt().sum(1).square()}, "norm must fulfil the triangle"),
        # The commonest mistake: the norm where its dual belongs.
        ({"dual_norm": lambda self, g: self.norm(g)}, "ascent must return directions of norm 1"),
        ({"dual_norm": lambda self, g: l2(g)}, r"ascent must return (directions of norm 1|the d with)"),
        ({"ascent": lambda self, g: g}, "ascent must return directions of norm 1"),
        ({"ascent": lambda self, g: g / per_image(self.norm(g), g).clamp(min=1e-30)}, "ascent must return the d"),
        ({"ascent": lambda self, g: g / per_image(self.norm(g), g)}, "ascent must return 0 for"),
        ({"ascent": lambda self, g: ThreeHalves.ascent(self, g).double()}, "ascent must return a tensor like"),
        ({"project": lambda self, v, radius: v}, "project must return points of the ball"),
        ({"project": lambda self, v, radius: 0 * v}, "project must leave a point of the ball"),
        (
            {"project": lambda self, v, radius: v * (per_image(radius, v) / per_image(self.norm(v), v)).clamp(max=1)},
            "project must return the nearest point of the ball",
        ),
        ({"sample": lambda self, like, radius, generator: 3 * torch.ones_like(like)}, "sample must draw points in the"),
        ({"sample": lambda self, like, radius, generator: torch.rand(like.shape) / 99}, "sample must draw from"),
        (
            {"sample_surface": lambda self, like, radius, generator: self.sample(like, radius, generator)},
            "sample_surface must draw points on the surface",
        ),
        ({"nearest": lambda self, *plane: L1().nearest(*plane)}, "nearest must return the smallest v"),
        ({"climb": lambda self, g: self.ascent(g)}, "climb and retract must lead to the highest point"),
    ],
)  # fmt: skip
def test_the_wrong_method_is_named(methods: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"Broken.{message}.*docs/norms.md"):
        check(broken(**methods), LIKE)


def test_a_subclass_that_changes_only_the_norm_is_refused() -> None:
    class Twice(L2):
        def norm(self, v: Tensor) -> Tensor:
            return 2 * super().norm(v)

    with pytest.raises(ConfigError, match="Twice"):
        check(Twice(), LIKE)


def test_a_norm_of_the_batch_is_refused() -> None:
    class Batch(ThreeHalves):
        def norm(self, v: Tensor) -> Tensor:
            return super().norm(v) * (1 if len(v) == 4 else 2)

    with pytest.raises(ConfigError, match=r"Batch\.norm must measure every image by itself"):
        check(Batch(), LIKE)


def test_a_norm_is_checked_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("gradreg.norms.consistency.check", lambda t, like: seen.append(tuple(like.shape[1:])))
    own = SumOfChannels()
    for _ in range(3):
        assert checked(own, LIKE) is own
        checked(Weighted(own, 2.0), LIKE)
        checked(threat("l2"), LIKE)
    checked(own, torch.zeros(5, 1, 2, 2))
    checked(SumOfChannels(), LIKE)
    assert seen == [(3, 4, 4), (1, 2, 2), (3, 4, 4)]
