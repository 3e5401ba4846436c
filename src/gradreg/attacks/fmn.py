"""FMN: fast minimum-norm attack."""

from functools import partial

import torch

from gradreg.attacks.geometry import linear_distance
from gradreg.attacks.radii import cosine, geometric
from gradreg.attacks.rivals import rivals, soft_lead
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.checks.scalars import Between0And1, Count, Natural, Positive
from gradreg.norms import per_image


@attack_on()
def fmn(
    search: Search,
    steps: Count = 100,
    gamma: Between0And1 = 0.05,
    first: Positive = 15.0,
    last: Positive = 1000.0,
    target: Natural = 0,
) -> None:
    """Ascend the margin inside a ball whose radius follows the boundary (Pintor et al. 2021).

    Before the first crossing the radius is that of the linearised boundary and 2 % more: without the overshoot the
    iterates creep up to a flat boundary from inside and never cross it. The margin is soft at first and hardens, so
    that all rival classes pull before the nearest one does. Steps are a fraction of the radius, so nothing has to
    be tuned to the model. `target` 1, 2, … pursues that rival class alone.
    """
    x, threat = search.x, search.threat
    towards = rivals(search, target) if target else search.y
    delta = torch.zeros_like(x)
    radius = torch.full_like(search.distance, torch.inf)
    crossed = torch.zeros_like(radius, dtype=torch.bool)
    for step in range(steps):
        sharpness = geometric(step, steps, first, last)
        if target:
            aim = partial(soft_lead, sharpness=sharpness)
            margin, height, gradient = search.loss_and_gradient(x + delta, aim, towards, search.scale)
        else:
            margin, height, gradient = search.soft_margin_and_gradient(x + delta, sharpness)
        change = cosine(step, steps, gamma, gamma / 50)
        size = threat.norm(delta)
        ahead = (size + 1.02 * linear_distance(threat, height, gradient)).nan_to_num(0.1, 0.1).clamp(1e-6)
        ahead = torch.minimum(ahead, search.widest)
        # In the box a step falls short of the linearised boundary, so the radius must grow by itself too.
        ahead = torch.maximum(ahead, torch.where(radius.isfinite(), radius * (1 + gamma), 0))
        outside = torch.where(crossed, radius * (1 + change), ahead)
        radius = torch.where(margin > 0, torch.minimum(radius, size) * (1 - change), outside)
        radius = torch.minimum(radius, search.distance)
        crossed = crossed | (margin > 0)
        pull = per_image(cosine(step, steps, 1.0, 0.01) * radius, x) * threat.pull(gradient)
        delta = search.clamp(x + threat.retract(delta + pull, radius)) - x
