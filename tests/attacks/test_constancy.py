"""Models that say something else when a gradient is asked for, or later: nothing found by them holds for the caller."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg.errors import ModelError


class Soft(nn.Module):
    """A linear classifier that shows attackers another one."""

    def __init__(self, asked: str) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net, self.other = (nn.Sequential(nn.Flatten(), nn.Linear(64, 4)) for _ in range(2))
        self.asked = asked

    def forward(self, x: Tensor) -> Tensor:
        shows = {"leaf": x.requires_grad, "mode": torch.is_grad_enabled(), "never": False}[self.asked]
        logits: Tensor = self.other(x) if shows else self.net(x)
        return logits


class Phases(nn.Module):
    """Rolls its classes once it has been asked about so many images, counted by a whole number."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.net, self.after, self.seen = Soft("never"), after, 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        logits: Tensor = self.net(x)
        return logits if self.seen <= self.after else logits.roll(1, 1)


def images() -> tuple[Tensor, Tensor]:
    x = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return x, Soft("never")(x).argmax(1)


@pytest.mark.parametrize("attacks", ["quick", "standard", ["fmn"], ["ddn"]])
@pytest.mark.parametrize("asked", ["leaf", "mode"])
def test_another_answer_with_a_gradient_is_refused(asked: str, attacks: str | list[str]) -> None:
    x, y = images()
    with pytest.raises(ModelError, match="of their range when a gradient is asked for"):
        gradreg.attack(Soft(asked).eval(), x, y, threat="l2", attacks=attacks)


@pytest.mark.parametrize("how", [{"attacks": ["pgd"], "eps": 0.05}, {"precision": "bf16"}], ids=["pgd", "bf16"])
@pytest.mark.parametrize("asked", ["leaf", "mode"])
def test_it_is_refused_where_no_gradient_is_asked_for_at_the_images(asked: str, how: dict[str, Any]) -> None:
    """PGD begins elsewhere, and what low precision rounds is not compared."""
    x, y = images()
    with pytest.raises(ModelError, match="of their range when a gradient is asked for"):
        gradreg.attack(Soft(asked).eval(), x, y, threat="linf", **how)


def test_the_same_answer_is_not() -> None:
    x, y = images()
    found = gradreg.attack(Soft("never").eval(), x, y, threat="l2", attacks="quick")
    assert bool(found.distance.isfinite().all())


@pytest.mark.parametrize("after", [60, 200])
def test_a_model_that_changes_in_the_course_of_the_search_is_refused(after: int) -> None:
    x, y = images()
    with pytest.raises(ModelError, match="in the course of the search"):
        gradreg.attack(Phases(after).eval(), x, y, threat="l2", attacks="quick")


def test_a_walk_that_stands_on_the_clean_image_finds_nothing_there() -> None:
    """PGD from a random start never asks about the clean image itself, and what it finds is asked alone."""
    x, y = images()
    found = gradreg.attack(Soft("leaf").eval(), x, y, threat="l2", attacks=["boundary"])
    assert not (found.distance == 0).any()
