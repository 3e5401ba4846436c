"""Which other class to aim at: the nearest boundary is not always that of the second highest score."""

import torch
from torch import Tensor

from gradreg.attacks.geometry import linear_distance
from gradreg.attacks.search import Search


def lead(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """f_t − f_c: how far the target class is ahead of the true one."""
    return (logits.gather(1, target[:, None]) - logits.gather(1, y[:, None])).squeeze(1)


def rival(search: Search, place: int, among: int = 6) -> Tensor:
    """The class whose linearised boundary is the 1st, 2nd, … nearest to the clean image.

    The rivals of an image are ranked when it first needs them, among the classes with the highest scores, with one
    forward and one backward each. The ranking is kept in the search, for all attacks.
    """
    others = search.logits.scatter(1, search.y[:, None], -torch.inf)
    classes = others.topk(min(among, others.shape[1] - 1)).indices
    ranking = classes if search.ranking is None else search.ranking
    ranked = torch.zeros_like(search.found) if search.ranked is None else search.ranked

    def rank() -> None:
        nonlocal ranking, ranked
        search.retire(ranked)
        fresh, far = search.live(), []
        for column in classes.unbind(1):
            _, height, gradient = search.loss_and_gradient(search.x, lead, column)
            far.append(linear_distance(search.threat, height, gradient).nan_to_num(torch.inf))
        nearest_first = classes.gather(1, torch.stack(far, 1).sort(dim=1, stable=True).indices)
        ranking, ranked = torch.where(fresh[:, None], nearest_first, ranking), ranked | fresh

    search.within(search.goal, rank)
    search.ranking, search.ranked = ranking, ranked
    return ranking[:, min(place, ranking.shape[1]) - 1]
