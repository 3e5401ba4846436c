"""Boundary attack: along the decision boundary by trial and error, from the labels alone."""

import torch
from torch import Tensor

from gradreg.attacks.geometry import inner, rescale
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.attacks.start import find_start
from gradreg.norms import per_image


@attack_on("l2", "linf")
def boundary(search: Search, steps: int = 1000, sideways: float = 0.1, inwards: float = 0.02) -> None:
    """Random steps sideways on the sphere, then towards the clean image, kept if adversarial (Brendel et al. 2018).

    Both step sizes are each image's own and follow its recent successes at every step. Starts from the best image
    known, or finds one; an image without any is left alone. No gradient, no score: what this finds below the distance
    of gradient attacks shows that gradients were masked.
    """
    find_start(search)
    x, threat = search.x, search.threat
    across = torch.full_like(search.distance, sideways)
    towards = torch.full_like(search.distance, inwards)
    for step in range(steps):
        delta, far = search.delta, search.distance
        if threat.name == "l2":
            noise = search.normal(step)
            noise = noise - per_image(inner(noise, delta) / inner(delta, delta).clamp(min=1e-30), x) * delta
            turned = delta + rescale(noise, threat.norm(noise), across * far)
            turned = rescale(turned, threat.norm(turned), far * (1 - towards))
        else:
            # The solution of a linear model is a corner of the cube: turn some of the pixels to a random side of it.
            luck = search.uniform(step)
            share = per_image(across, x)
            side = torch.where(luck < share / 2, -1.0, 1.0).to(x.dtype)
            turned = torch.where(luck < share, side * per_image(far, x), delta)
            turned = threat.project(turned, far * (1 - towards))
        candidate = search.clamp(x + turned)
        kept = search.margin(candidate) > 0
        across, towards = _adapt(across, kept), _adapt(towards, kept)
        # A sideways step of length s can gain at most s² / 2 of the distance.
        towards = torch.minimum(towards, _most(across, threat.name))
        search.retire(across < 1e-5)


def _adapt(size: Tensor, kept: Tensor) -> Tensor:
    """Grow after a success and shrink after a failure, balanced where one step in four succeeds."""
    return torch.where(kept, size * 1.06, size * 1.06 ** (-1 / 3)).clamp(max=1.0)


def _most(across: Tensor, threat: str) -> Tensor:
    return across.square() / 2 if threat == "l2" else across / 2
