"""DDN: the direction of the perturbation and its length are decided separately."""

import torch

from gradreg.attacks.geometry import linear_distance, rescale
from gradreg.attacks.radii import cosine, geometric
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.checks.scalars import Between0And1, Count
from gradreg.norms import per_image


@attack_on("l2", because="it separates direction and length by l2 steps")
def ddn(search: Search, steps: Count = 100, gamma: Between0And1 = 0.05) -> None:
    """Walk on a sphere that shrinks while the point is adversarial and grows while it is not (Rony et al. 2019).

    Three changes to the paper: a soft margin that hardens, since its gradient ends up normal to the nearest boundary,
    where that of the cross entropy is not; a first radius just beyond the linearised boundary; and a γ that falls, to
    end on the boundary.
    """
    x, threat = search.x, search.threat
    delta = torch.zeros_like(x)
    radius = search.distance.new_zeros(len(x))
    for step in range(steps):
        sharpness = geometric(step, steps, 15.0, 1000.0)
        margin, height, gradient = search.soft_margin_and_gradient(x + delta, sharpness)
        change = cosine(step, steps, gamma, gamma / 50)
        if step == 0:
            radius = (1.02 * linear_distance(threat, height, gradient)).nan_to_num(0.1, 0.1).clamp(1e-6)
            radius = torch.minimum(radius, search.widest)
        else:
            radius = radius * torch.where(margin > 0, 1 - change, 1 + change)
        radius = torch.minimum(radius, search.distance)
        pull = per_image(cosine(step, steps, 1.0, 0.01) * radius, x)
        delta = delta + pull * threat.ascent(gradient)
        delta = search.clamp(x + rescale(delta, threat.norm(delta), radius)) - x
