"""Adversarial images that survive being stored: every pixel a multiple of 1/(2^bits − 1) of the box."""

import torch
from torch import Tensor

from gradreg.attacks.search import Finished, Search

_FACTORS = (1.0, 1.01, 1.03, 1.06, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0, 5.0, 9.0)


def snap(search: Search, bits: int, budget: int | None) -> None:
    """Replace each adversarial image by one on the grid: the first longer perturbation that survives rounding.

    Rounding to the nearest level removes perturbations below half a level, so rounding away from the clean image is
    tried too. What the budget does not allow to try is not found.
    """
    delta, found = search.delta, search.found
    unfinished = search.distance > 0
    search.distance = search.distance.masked_fill(unfinished, torch.inf)
    winner, search.winner = search.winner, search.winner.masked_fill(unfinished, -1)
    search.ties, search.on_grid = None, True
    search.adversarial, search.budget = search.x.clone(), budget
    search.reopen(torch.zeros_like(search.goal))
    try:
        search.begin(0)
        search.retire(~found)
        for factor in _FACTORS:
            for away in (False, True):
                search.margin(_on_grid(search, factor * delta, bits, away))
            search.retire(search.found)
    except Finished:
        pass
    search.winner = torch.where(search.found & unfinished, winner, search.winner)


def _on_grid(search: Search, delta: Tensor, bits: int, away: bool) -> Tensor:
    levels, width = 2**bits - 1, search.high - search.low
    level = (search.clamp(search.x + delta) - search.low) / width * levels
    outwards = torch.where(delta > 0, level.ceil(), level.floor())
    rounded = torch.where((delta != 0) & away, outwards, level.round())
    return rounded.mul(width / levels).add(search.low)
