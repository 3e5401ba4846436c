"""The reference AutoAttack as a step of a plan, by its name in `attack(attacks=[…], eps=…)`."""

from torch import inf

from gradreg.attacks.autoattack import VERSIONS, craft
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.checks.scalars import check_choice
from gradreg.errors import ConfigError


@attack_on("linf", "l2", "l1", because="the reference has no other", fixed=True)
def autoattack(search: Search, version: str = "standard") -> None:
    """AutoAttack (Croce & Hein 2020) at the radii of the images that are not broken yet, through pyautoattack.

    Its random numbers belong to a batch, so results depend on the batch size; its costs are averages over the batch.
    """
    check_choice("version", version, VERSIONS)
    if search.topk > 1 or search.budget is not None:
        raise ConfigError("autoattack is about the largest logit and keeps to no budget: leave out topk= and budget=.")
    for radius in sorted({eps for eps in search.goal.tolist() if 0 < eps < inf}):
        rows = (search.live() & (search.goal == radius)).nonzero().flatten()
        if len(rows):
            with search.classifier.uncounted():
                x, y = search.x[rows], search.y[rows]
                found = craft(search.classifier, x, y, search.threat, radius, version, search.seed)
            if search.queries is not None:
                search.queries.forwards[rows] += found.forwards
                search.queries.backwards[rows] += found.backwards
            points = search.x.clone()
            points[rows] = found.images
            search.margin(points)
