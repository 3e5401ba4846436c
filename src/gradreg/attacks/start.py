"""A first adversarial image, for attacks that start from one."""

import torch

from gradreg.attacks.deepfool import deepfool
from gradreg.attacks.polish import polish
from gradreg.attacks.search import Search


def find_start(search: Search, tries: int = 20, gradients: bool = False) -> None:
    """Look for any adversarial image where none is known, then bisect its segment; images without one are retired.

    Blends with uniform noise, from a little of it to nothing else, then the negative, flat grey levels and black and
    white noise; with `gradients`, DeepFool after them. Images are tried independently, so one for which nothing works
    costs the others nothing.
    """
    fresh = ~search.found

    def blends() -> None:
        width = search.high - search.low
        for number in range(tries):
            noise = search.low + width * search.uniform(-1 - number)
            search.margin(search.x + (number + 1) / tries * (noise - search.x))
        search.margin(search.low + search.high - search.x)
        for level in (0.0, 1.0, 0.5):
            search.margin(torch.full_like(search.x, search.low + level * width))
        for number in range(tries, 2 * tries):
            search.margin(search.low + width * search.uniform(-1 - number).round())
        if gradients:
            deepfool.search(search)

    def bisection() -> None:
        search.retire(~fresh)
        polish.search(search, steps=8, first=0.25)

    # Finished at any distance: the first blend that works is the nearest of them.
    search.within(search.anywhere, blends)
    search.within(search.goal, bisection)
    search.retire(~search.found)
