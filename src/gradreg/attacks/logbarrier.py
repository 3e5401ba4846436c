"""LogBarrier: from inside the adversarial region towards the clean image, held off the boundary by a logarithm."""

import torch

from gradreg.attacks.geometry import linear_distance
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.attacks.start import find_start
from gradreg.checks.scalars import Between0And1, Count, Positive, UpTo1
from gradreg.norms import per_image


@attack_on()
def logbarrier(
    search: Search,
    outer: Count = 12,
    inner: Count = 12,
    alpha: Positive = 0.3,
    beta: UpTo1 = 0.65,
    step: Between0And1 = 0.3,
) -> None:
    """Minimise the distance less α·log(margin), for smaller and smaller α (Finlay, Pooladian & Oberman 2019).

    The margin is the top-k one on logits, so that the barrier stands at the boundary which counts and does not depend
    on their scale; α is relative to the squared distance. A point that is not adversarial is pulled halfway back to
    the last one that was, and the image's step is halved: a trial costs one forward and one backward, and no inner loop
    can hang. In l∞ the distance falls by clipping, the steepest way down, not along a smoothed maximum.
    """
    find_start(search, gradients=True)
    x, threat = search.x, search.threat
    inside = delta = search.delta
    pace = torch.full_like(search.distance, step)
    for number in range(outer * inner):
        height = alpha * beta ** (number // inner)
        margin, gradient = search.margin_and_gradient(x + delta)
        holds = margin > 0
        chosen = per_image(holds, x).bool()
        inside = torch.where(chosen, delta, inside)
        pace = torch.where(holds, 1.2 * pace, 0.5 * pace).clamp(1e-4, step)
        far = threat.norm(delta)
        # Equilibrium: the linearised boundary is α times the distance away. Close to it the push is bounded.
        away = linear_distance(threat, margin, gradient).clamp(min=1e-12)
        push = pace * far * (height * far / away).clamp(max=2.0)
        moved = threat.retract(delta, (1 - pace) * far) + per_image(push, x) * threat.climb(gradient)
        delta = torch.where(chosen, search.clamp(x + moved) - x, (delta + inside) / 2)
