"""PGD: projected gradient ascent in a ball, the attack that adversarial training and most tables use."""

from typing import Literal

import torch

from gradreg.attacks.radii import smallest_radius
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.checks.scalars import Count, Positive
from gradreg.losses import cross_entropy, margin
from gradreg.norms import Threat, per_image


@attack_on()
def pgd(
    search: Search,
    steps: Count = 20,
    rounds: Count = 12,
    rel_step: Positive = 0.1,
    loss: Literal["ce", "margin"] = "ce",
) -> None:
    """Steepest ascent of the loss, projected to the ball (Madry et al. 2018), from a random start.

    With radii, `rounds` are restarts; without, the radius of each image is bisected over the rounds.
    """
    losses = {"ce": cross_entropy, "margin": lambda logits, y: margin(logits, y, search.topk)}

    def inside(radius: torch.Tensor, number: int) -> None:
        delta = _random_point(search, search.threat, radius, number)
        for _ in range(steps):
            _, _, gradient = search.loss_and_gradient(search.x + delta, losses[loss])
            delta = delta + per_image(rel_step * radius, delta) * search.threat.climb(gradient)
            delta = search.clamp(search.x + search.threat.retract(delta, radius)) - search.x
        search.margin(search.x + delta)

    smallest_radius(search, inside, rounds)


def _random_point(search: Search, threat: Threat, radius: torch.Tensor, draw: int) -> torch.Tensor:
    """A random point of the ball; where an adversarial image is known, the nearest one projected onto the ball."""
    noise = threat.retract((search.uniform(draw) - 0.5) * per_image(radius, search.x), radius)
    known = threat.retract(search.delta, radius)
    warm = per_image(search.found & (not search.fixed_radius), search.x).bool()
    return search.clamp(search.x + torch.where(warm, known, noise)) - search.x
