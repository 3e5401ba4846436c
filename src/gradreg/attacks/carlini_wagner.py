"""Carlini & Wagner: distance and misclassification in one objective, balanced by a constant."""

import torch
from torch import Tensor

from gradreg.attacks.geometry import linear_distance
from gradreg.attacks.radii import cosine
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.norms import per_image


@attack_on("l2", "linf")
def carlini_wagner(search: Search, steps: int = 100, rounds: int = 6, rel_step: float = 0.1) -> None:
    """Minimise ‖δ‖² + c·max(−margin, 0) by Adam, with a constant c for each image (Carlini & Wagner 2017).

    l∞: Σ max(|δ_i| − τ, 0) for the distance, τ below the best one known (their §VI-C). The constant starts where the
    two gradients balance on a linear model, so logits of any scale work, and is bisected; each round starts from the
    best image so far. The box is kept by clipping (their §V-B): tanh has no gradient for pixels that are 0 or 1.
    """
    x, threat = search.x, search.threat
    margin, gradient = search.margin_and_gradient(x)
    size = linear_distance(threat, margin, gradient).nan_to_num(0.1, 0.1).clamp(1e-6)
    slope = threat.dual_norm(gradient)
    slope = slope.where(slope > 0, 1)
    constant = 2 * size / slope if threat.name == "l2" else x[0].numel() / slope
    lower, upper = torch.zeros_like(constant), torch.full_like(constant, torch.inf)
    step_size = rel_step * (size / 2 if threat.name == "linf" else _typical(size, gradient))
    delta, gap = torch.zeros_like(x), torch.full_like(size, 0.1)
    for _ in range(rounds):
        before = search.distance
        bound = (1 - gap) * torch.where(search.found, before, size)
        crossed = _minimise(search, delta, constant, bound, step_size, steps)
        lower, upper = torch.where(crossed, lower, constant), torch.where(crossed, constant, upper)
        if threat.name == "l2":
            # The smallest constant that still crosses gives the smallest distance.
            halved = torch.where(lower > 0, (lower * upper).sqrt(), upper / 2)
            constant = torch.where(upper.isfinite(), halved, 4 * constant)
        else:
            # The bound moves, so no constant is settled: less weight if a crossing gained nothing, more after none.
            gained = search.distance < (1 - gap / 2) * before
            constant = torch.where(gained, constant, torch.where(crossed, constant / 2, constant * 2))
        gap = torch.where(search.distance < (1 - gap / 2) * before, gap, gap / 2)
        delta = search.delta


def _minimise(search: Search, delta: Tensor, constant: Tensor, bound: Tensor, step_size: Tensor, steps: int) -> Tensor:
    """Adam (Kingma & Ba 2015) on one constant; which images were adversarial in its second half."""
    x = search.x
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    crossed = torch.zeros_like(bound, dtype=torch.bool)
    for step in range(1, steps + 1):
        margin, gradient = search.margin_and_gradient(x + delta)
        # Rounds begin at an adversarial image, so only what is found later tells whether the constant is large enough.
        crossed = crossed | ((margin > 0) & (2 * step > steps))
        wanted = per_image(constant * (margin <= 0), x)
        if search.threat.name == "l2":
            slope = 2 * delta - wanted * gradient
        else:
            slope = delta.sign() * (delta.abs() > per_image(bound, x)) - wanted * gradient
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope.square()
        move = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + torch.finfo(x.dtype).tiny)
        move = move * per_image(cosine(step - 1, steps, 1.0, 0.02) * step_size, x)
        delta = search.clamp(x + delta - move) - x
    return crossed


def _typical(size: Tensor, gradient: Tensor) -> Tensor:
    """How much a pixel moves in the solution of the linearised problem, for the pixels that matter."""
    weight = gradient.flatten(1).abs()
    return size * weight.square().sum(1).sqrt() / weight.sum(1).clamp(min=torch.finfo(weight.dtype).tiny)
