"""PGD: projected gradient ascent in a ball, the attack that adversarial training and most tables use."""

import torch

from gradreg.attacks.radii import smallest_radius
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy, margin
from gradreg.norms import Threat, per_image


@attack_on("l2", "linf")
def pgd(search: Search, steps: int = 20, rounds: int = 12, rel_step: float = 0.1, loss: str = "ce") -> None:
    """Steepest ascent of the loss, projected to the ball (Madry et al. 2018), from a random start.

    With radii, `rounds` are restarts; without, the radius of each image is bisected over the rounds.
    """
    losses = {"ce": cross_entropy, "margin": lambda logits, y: margin(logits, y, search.topk)}
    if loss not in losses:
        raise ConfigError(f"pgd's loss must be one of {', '.join(losses)}; got {loss!r}.")

    def inside(radius: torch.Tensor, number: int) -> None:
        delta = _random_point(search, search.threat, radius, number)
        for _ in range(steps):
            _, _, gradient = search.loss_and_gradient(search.x + delta, losses[loss])
            delta = delta + per_image(rel_step * radius, delta) * search.threat.ascent(gradient)
            delta = search.clamp(search.x + search.threat.project(delta, radius)) - search.x
        search.margin(search.x + delta)

    smallest_radius(search, inside, rounds)


def _random_point(search: Search, threat: Threat, radius: torch.Tensor, draw: int) -> torch.Tensor:
    """A random point of the ball; where an adversarial image is known, the nearest one projected onto the ball."""
    noise = threat.project((search.uniform(draw) - 0.5) * per_image(radius, search.x), radius)
    known = threat.project(search.delta, radius)
    warm = per_image(search.found & (not search.fixed_radius), search.x).bool()
    return search.clamp(search.x + torch.where(warm, known, noise)) - search.x
