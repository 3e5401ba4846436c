"""What an odd model is: a factory, an honest twin and the sentences that refuse it; and honest ones to make it of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Make = Callable[[], Any]
Rewrite = Callable[[Any, Tensor], Any]

X = 0.3 + 0.4 * torch.rand(10, 3, 4, 4, generator=torch.Generator().manual_seed(0))

RANDOM = "returns different logits when asked again about the same images"
MIXES = "depend on the other images of the batch"
OUTPUT = "The model must return logits of shape"
DETACHED = "does not depend on the images through autograd"
TRAINING = "The model is in train mode"
PRECISION = "Rounding makes up|In float16, rounding"
NOT_FINITE = "not finite|diverged"
SATURATED = {"estimate_regularity": "gradient of exactly zero", "bounds": "gradient of exactly zero"}
_ATTACKING = ("attack quick", "attack quick linf", "attack quick eps", "attack standard", "attack paper", "evaluate")
TRAINED = ("regularized_loss", "GradientPenalty", "fit")
"""Functions that train."""
BLIND = (
    SATURATED
    | dict.fromkeys(_ATTACKING, "zero or not finite at 10 of 10")
    | dict.fromkeys(TRAINED, "at all 10 images is exactly zero, though the model tells them apart")
)
"""No gradient anywhere: attacks and penalties answer, and warn. An inspection says it in the place of the bound."""
A_MODULE = "must be (an nn.Module|of type Module)"
PRECISE = dict.fromkeys(TRAINED, PRECISION)
ZERO = "gradient of exactly zero|does not depend on the images"


@dataclass(frozen=True)
class Odd:
    """A model, what it must agree with, and what it is refused with, by function ("" for every other one)."""

    make: Make
    twin: Make | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    rtol: float = 1e-3
    exact: bool = False
    """The twin is the linear model, or has its distances."""
    not_compared: tuple[str, ...] = ()
    """Functions for which the twin is another model, since they put it in train mode."""
    may_answer: bool = False
    """What is refused is only seen away from the images, where not every call looks: right answers are right too."""


def seeded(make: Make) -> Make:
    """The same weights every time, whatever was drawn before."""

    def again() -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            return make()

    return again


@seeded
def linear() -> Any:
    """Four classes of 3×4×4 images, balanced in the middle of the box."""
    layer = nn.Linear(48, 4)
    with torch.no_grad():
        layer.weight.mul_(3)
        layer.bias.copy_(-0.5 * layer.weight.sum(1))
    return nn.Sequential(nn.Flatten(), layer).eval()


@seeded
def convolutional() -> Any:
    """With batch normalisation that has seen images."""
    layers = (nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.GELU(), nn.Flatten(), nn.Linear(96, 4))
    net = nn.Sequential(*layers)
    net(torch.rand(64, 3, 4, 4))
    return net.eval()


class Around(nn.Module):
    """A network inside a forward that somebody wrote."""

    def __init__(self, net: nn.Module, rewrite: Rewrite) -> None:
        super().__init__()
        self.net, self.rewrite = net, rewrite
        self.eval()

    def forward(self, x: Tensor) -> Any:
        return self.rewrite(self.net, x)


def around(rewrite: Rewrite, base: Make = linear) -> Make:
    return lambda: Around(base(), rewrite)


centred = around(lambda net, x: net(x - 0.1))


def straight(value: Tensor, rounded: Tensor) -> Tensor:
    return value + (rounded - value).detach()
