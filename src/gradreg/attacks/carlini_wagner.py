"""Carlini & Wagner: distance and misclassification in one objective, balanced by a constant."""

from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from gradreg.attacks.geometry import inner, linear_distance
from gradreg.attacks.radii import cosine
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.checks.scalars import Below1, Count, Positive
from gradreg.norms import L2, Linf, Threat, per_image

# What the step size is divided by when an image stalls, and how often before the image is done with a constant.
_SHRINK, _TIMES = 3.0, 3


@attack_on()
def carlini_wagner(
    search: Search, steps: Count = 100, rounds: Count = 6, rel_step: Positive = 0.1, stall: Below1 = 1e-3
) -> None:
    """Minimise ‖δ‖² + c·max(−margin, 0) by Adam, with a constant c for each image (Carlini & Wagner 2017).

    l∞: Σ max(|δ_i| − τ, 0) for the distance, τ below the best one known (their §VI-C); in other norms, half of the
    squared l2 distance to the ball of radius τ. The constant starts where the two gradients balance on a linear model,
    so logits of any scale work, and is bisected; each round starts from the best image so far. The box is kept by
    clipping (their §V-B): tanh has no gradient for pixels that are 0 or 1. `steps` and `rounds` are upper limits: an
    image is done with a constant, and with all of them, when it improves by less than the fraction `stall`.
    """
    x, threat = search.x, search.threat
    margin, gradient = search.margin_and_gradient(x)
    size = linear_distance(threat, margin, gradient).nan_to_num(0.1, 0.1).clamp(1e-6)
    size = torch.minimum(size, search.widest)
    slope = threat.dual_norm(gradient)
    slope = slope.where(slope > 0, 1)
    price, gap = _price(threat.core), torch.full_like(size, 0.1)
    reached = threat.to_core(per_image(size, x) * threat.ascent(gradient))
    constant = price.constant(reached, (1 - gap) * size) / slope
    lower, upper = torch.zeros_like(constant), torch.full_like(constant, torch.inf)
    step_size = rel_step * (size / 2 if type(threat.core) is Linf else _typical(reached))
    delta = torch.zeros_like(x)
    idle = torch.zeros_like(size)
    for _ in range(rounds):
        before = search.distance
        bound = (1 - gap) * torch.where(search.found, before, size)
        descent = _Descent(search, price, delta, constant, bound, step_size)
        search.within(search.goal, partial(descent, steps, stall))
        crossed = descent.crossed
        lower, upper = torch.where(crossed, lower, constant), torch.where(crossed, constant, upper)
        if type(threat.core) is L2:
            # The smallest constant that still crosses gives the smallest distance.
            halved = torch.where(lower > 0, lower.sqrt() * upper.sqrt(), upper / 2)  # a product could overflow
            constant = torch.where(upper.isfinite(), halved, 4 * constant)
        else:
            # The bound moves, so no constant is final: less weight if a crossing gained nothing, more after none.
            gained = search.distance < (1 - gap / 2) * before
            constant = torch.where(gained, constant, torch.where(crossed, constant / 2, constant * 2))
        gap = torch.where(search.distance < (1 - gap / 2) * before, gap, gap / 2)
        delta = search.delta
        # One idle round may be due to the constant, two are due to the image, unless a bound τ was too low.
        settled = search.found & (search.distance > (1 - stall) * before)
        settled &= gap < (torch.inf if type(threat.core) is L2 else 0.01)
        idle = torch.where(settled, idle + 1, 0)
        search.retire(idle >= 2)


class _Descent:
    """Adam (Kingma & Ba 2015) for one constant; `crossed` are the images that were adversarial once it had settled."""

    def __init__(
        self, search: Search, price: "_Price", delta: Tensor, constant: Tensor, bound: Tensor, step_size: Tensor
    ) -> None:
        # Where the gradient is next to nothing the constant overflows, and infinity times no gradient is NaN.
        self.constant = constant.clamp(max=torch.finfo(constant.dtype).max)
        self.search, self.delta, self.bound = search, delta.clone(), bound
        self.price, self.step_size = price, step_size
        self.crossed = torch.zeros_like(bound, dtype=torch.bool)

    def __call__(self, steps: int, stall: float) -> None:
        """An image's step size shrinks when its objective stalls; after that the image rests until the next round."""
        search, x, threat, delta = self.search, self.search.x, self.search.threat, self.delta
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        window = max(20, steps // 40)
        lowest = self.bound.new_full(self.bound.shape, torch.inf)
        earlier, shrunk = lowest, torch.zeros_like(lowest)
        for step in range(1, steps + 1):
            margin, gradient = search.margin_and_gradient(x + delta)
            # Rounds begin at an adversarial image, so only what is found later shows whether the constant suffices.
            self.crossed |= (margin > 0) & ((2 * step > steps) | (shrunk > 0))
            price, slope = self.price(threat.to_core(delta), self.bound)
            lowest = torch.minimum(lowest, price - self.constant * margin.clamp(max=0))
            uphill = threat.gradient_to_core(gradient)
            slope = slope.addcmul_(per_image(self.constant * (margin <= 0), x), uphill, value=-1)
            first.mul_(0.9).add_(slope, alpha=0.1)
            second.mul_(0.999).addcmul_(slope, slope, value=0.001)
            rate = cosine(step - 1, steps, 1.0, 0.02) * self.step_size * _SHRINK**-shrunk / (1 - 0.9**step)
            move = (second / (1 - 0.999**step)).sqrt_().add_(torch.finfo(x.dtype).tiny)
            step_back = threat.from_core((first / move).nan_to_num_(0.0, 0.0, 0.0).mul_(per_image(rate, x)))
            delta = search.clamp(x + delta - step_back).sub_(x)
            if step % window == 0:
                shrunk = shrunk + (lowest > (1 - stall) * earlier)
                earlier = lowest
                search.retire(shrunk > _TIMES)


class _Price(Protocol):
    """The distance term of the objective for a perturbation, in core coordinates, and a bound τ; and its gradient."""

    def __call__(self, delta: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]: ...

    def constant(self, reached: Tensor, bound: Tensor) -> Tensor:
        """The slope of the price along the solution of a linear model, which the margin's slope is to balance."""
        ...


class _SquaredLength:
    """l2: ‖δ‖²."""

    def __call__(self, delta: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
        return inner(delta, delta), 2 * delta

    def constant(self, reached: Tensor, bound: Tensor) -> Tensor:
        return 2 * inner(reached, reached).sqrt()


class _Excess:
    """l∞: Σ max(|δ_i| − τ, 0)."""

    def __call__(self, delta: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
        above = delta.abs() - per_image(bound, delta)
        return above.clamp(min=0).flatten(1).sum(1), delta.sign() * (above > 0)

    def constant(self, reached: Tensor, bound: Tensor) -> Tensor:
        return torch.full_like(bound, reached[0].numel())


class _Outside:
    """Any norm: half of the squared l2 distance to the ball of radius τ, whose gradient is the way back to it."""

    def __init__(self, threat: Threat) -> None:
        self.threat = threat

    def __call__(self, delta: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
        beyond = delta - self.threat.project(delta, bound)
        return inner(beyond, beyond) / 2, beyond

    def constant(self, reached: Tensor, bound: Tensor) -> Tensor:
        _, back = self(reached, bound)
        size = self.threat.norm(reached)
        return (inner(back, reached) / size).where(size > 0, 1)


def _price(threat: Threat) -> _Price:
    if type(threat.core) is L2:
        return _SquaredLength()
    return _Excess() if type(threat.core) is Linf else _Outside(threat)


def _typical(reached: Tensor) -> Tensor:
    """How much a pixel moves in the solution of the linearised problem, for the pixels that matter."""
    weight = reached.flatten(1).abs()
    return weight.square().sum(1) / weight.sum(1).clamp(min=torch.finfo(weight.dtype).tiny)
