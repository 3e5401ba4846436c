"""Which other class to aim at: the nearest boundary is not always that of the second highest score."""

import torch
from torch import Tensor

from gradreg.attacks.geometry import linear_distance
from gradreg.attacks.search import Search

# How many rivals are ranked. The nearest boundary of many classes is more often not that of a high score: MALT (Melamed
# et al. 2024) ranks 100 of them.
_AMONG, _AMONG_MANY, _MANY = 6, 30, 100


def lead(logits: Tensor, y: Tensor, targets: Tensor) -> Tensor:
    """min_t f_t − f_c: how far the target classes, (N, k), are all ahead of the true one."""
    return (logits.gather(1, targets) - logits.gather(1, y[:, None])).amin(1)


def soft_lead(logits: Tensor, y: Tensor, targets: Tensor, scale: Tensor, sharpness: float) -> Tensor:
    """The lead of scaled logits with a smooth minimum, so that all targets pull at once; for one target it is exact."""
    leads = (logits.gather(1, targets) - logits.gather(1, y[:, None])) * scale
    return -torch.logsumexp(-sharpness * leads, 1) / sharpness


def rivals(search: Search, place: int) -> Tensor:
    """The classes to aim at, (N, k): for top-1 the one whose linearised boundary is the 1st, 2nd, … nearest.

    For top-k the k − 1 nearest, and of the others the 1st, 2nd, …: all of them must pass the true class. The rivals of
    an image are ranked when it first needs them, among the classes with the highest scores, with one forward and one
    backward each. The ranking is kept in the search, for all attacks.
    """
    k = search.topk
    others = search.logits.scatter(1, search.y[:, None], -torch.inf)
    among = _AMONG if others.shape[1] < _MANY else _AMONG_MANY
    classes = others.topk(min(among + k - 1, others.shape[1] - 1)).indices
    ranking = classes if search.ranking is None else search.ranking
    ranked = torch.zeros_like(search.found) if search.ranked is None else search.ranked

    def rank() -> None:
        nonlocal ranking, ranked
        search.retire(ranked)
        fresh, far = search.live(), []
        for column in classes.unbind(1):
            _, height, gradient = search.loss_and_gradient(search.x, lead, column[:, None])
            far.append(linear_distance(search.threat, height, gradient).nan_to_num(torch.inf))
        nearest_first = classes.gather(1, torch.stack(far, 1).sort(dim=1, stable=True).indices)
        ranking, ranked = torch.where(fresh[:, None], nearest_first, ranking), ranked | fresh

    search.within(search.goal, rank)
    search.ranking, search.ranked = ranking, ranked
    last = min(k + place - 1, ranking.shape[1]) - 1
    return torch.cat([ranking[:, : k - 1], ranking[:, last : last + 1]], 1)
