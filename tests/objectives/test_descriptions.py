"""Objectives as model cards describe them."""

from dataclasses import dataclass

import pytest
from torch import Tensor, nn

from gradreg.objectives import OBJECTIVES, Adversarial, Gradient, Moment, Noise, Outcome, Undefended, describe


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_describes_itself(name: str) -> None:
    objective = Gradient(lam=1) if name == "gradient" else OBJECTIVES[name]()
    words = describe(objective)
    assert not words.startswith("with the objective")
    assert describe(Noise(0.5, objective)) == f"on images with Gaussian noise of σ = 0.5, {words}"


def test_the_strength_of_a_penalty_is_described_in_its_own_units() -> None:
    assert "λ/2 · ‖∇ℓ‖_2², λ = 0.1, by" in describe(Gradient(lam=0.1))
    assert "λ/2 · ‖∇ℓ‖_1², λ = 0.1 (over √N), by" in describe(Gradient("linf", lam=0.1))
    assert "λ · ‖∇ℓ‖_2, λ = 2, by double backprop" in describe(Gradient(lam=2, squared=False, method="double-backprop"))
    assert "1.5 · 8/255 · ‖∇ℓ‖_1, by" in describe(Gradient("linf", eps=8 / 255, weight=1.5))
    assert "plus 0.5 · ‖∇ℓ‖_2, by finite differences, h = 7/255 ± 40 %" in describe(
        Gradient(eps=0.5, h=7 / 255, h_jitter=0.4)
    )


def test_a_users_objective_may_describe_itself_or_is_named() -> None:
    @dataclass(frozen=True)
    class Plain:
        def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
            return Undefended()(model, x, y, at)

    class Worded(Plain):
        def describe(self) -> str:
            return "on a loss of one's own"

    assert describe(Plain()) == "with the objective Plain"
    assert describe(Worded()) == "on a loss of one's own"
    assert describe(Noise(0.5, Plain())) == "on images with Gaussian noise of σ = 0.5, with the objective Plain"


def test_the_ball_is_named_by_its_norm_and_radius() -> None:
    assert describe(Adversarial()) == "on the worst images that 7 steps of ascent find within l∞ 8/255"
