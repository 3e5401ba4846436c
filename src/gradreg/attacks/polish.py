"""Polish: a line search from an adversarial image back to the clean image."""

import torch

from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.checks.scalars import Between0And1, Count
from gradreg.norms import per_image


@attack_on(claims=False)
def polish(search: Search, steps: Count = 10, first: Between0And1 = 0.02) -> None:
    """Bisect the segment from the clean image to the best adversarial one; forwards only, and never a larger distance.

    Good attacks end near the boundary, so the first trial is `first` below the end of the segment, and the trials go
    down in growing steps until one is not adversarial.
    """
    search.retire(~search.found)
    delta, far = search.delta, search.distance
    upper = torch.ones_like(far)
    lower = torch.zeros_like(far)
    gap = torch.full_like(far, first)
    for _ in range(steps):
        # Until a lower trial fails there is no bracket, only the clean image: go down by the gap.
        share = torch.where(lower > 0, (lower + upper) / 2, torch.maximum(upper - gap, upper / 2))
        reached = search.margin(search.x + per_image(share, delta) * delta) > 0
        upper, lower = torch.where(reached, share, upper), torch.where(reached, lower, share)
        gap = 3 * gap
