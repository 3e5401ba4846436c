"""What an attack found, asked once more: every adversarial image alone in a batch of one, and ties on the way to it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.attacks.constancy import check_constancy
from gradreg.attacks.search import CREDIT, Search, refuse_broken
from gradreg.classifier import Classifier
from gradreg.looks import fetched
from gradreg.losses import margin
from gradreg.norms import per_image

# How far an image that fails alone is pushed outwards before it is given up.
_PUSHES = (1.0001, 1.001, 1.01, 1.1)
_HALVINGS = 10


@dataclass(frozen=True)
class Found:
    """What was found for each image, on the host: the number of the attack, −1 if none, the distance, no gradient."""

    winner: Tensor
    distance: Tensor
    blind: Tensor


def verify(search: Search, *, push: bool) -> Found:
    """Keep what is misclassified when asked alone; push out what is not, or give it up.

    The label is strictly behind at what is kept. A point where it is level with a rival counts as an error too, as it
    does for clean images, but only if it is nearer by more than rounding: any walk to a boundary ends in ties that
    another batch size breaks.
    """
    rows, constancy = search.rows_found(), search.constancy
    delta = search.delta
    failed = _ask(search, search.adversarial[rows], rows)
    factors = _PUSHES if push else ()
    pushed = failed & search.affords(len(factors))
    found, (failing, pushing, tied, moves) = _look(search, failed, pushed, _nearer_ties(search), _moved(search))
    with_gradient, since, compared = moves.tolist()
    check_constancy(with_gradient, since)
    if not compared:
        constancy.compare()
        check_constancy(float(constancy.with_gradient), since)
    if bool((failing | tied).any()):
        _push_out(search, delta, failed, pushing.nonzero().flatten().to(failed.device), factors)
        _take_ties(search)
        found, _ = _look(search)
    return found


def _moved(search: Search) -> Tensor:
    """How far answers about the clean images move with a gradient, how far they have moved, and whether both are known.

    A budget is for the search alone.
    """
    constancy, nothing = search.constancy, torch.zeros_like(search.constancy.with_gradient)
    if search.budget is not None:
        return torch.stack([constancy.with_gradient, nothing, nothing + 1])
    if constancy.asked and not constancy.noted:
        constancy.compare()
    known = constancy.compared if constancy.asked else nothing + 1
    return torch.stack([constancy.with_gradient, constancy.since(), known.to(nothing)])


def _look(search: Search, *masks: Tensor) -> tuple[Found, list[Tensor]]:
    """What was found, and these masks on the host: by one look."""
    found = fetched(search.broken, search.winner, search.distance, search.guidance.blind, *masks)
    refuse_broken(found[0])
    return Found(*found[1:4]), found[4:]


def _where(mask: Tensor) -> Tensor:
    """The rows where it is true, by one look."""
    return fetched(mask)[0].nonzero().flatten().to(mask.device)


def _ask(search: Search, points: Tensor, rows: Tensor) -> Tensor:
    """Take these points for the adversarial images of those rows; which of them are not, asked alone."""
    search.adversarial[rows] = points
    search.distance[rows] = search.threat.norm(points - search.x[rows])
    failed = torch.zeros_like(search.distance, dtype=torch.bool)
    return failed.index_put((rows,), _alone(search, points, rows) <= 0)


def _push_out(search: Search, delta: Tensor, failed: Tensor, rows: Tensor, factors: tuple[float, ...]) -> None:
    """Lengthen the perturbations of these rows until they do not fail, and give up what still does, or was left out.

    Each row is asked about with every factor: to look which of them is enough would make an accelerator wait.
    """
    for factor in factors if len(rows) else ():
        longer = search.clamp(search.x[rows] + factor * delta[rows])
        points = torch.where(per_image(failed[rows], longer).bool(), longer, search.adversarial[rows])
        failed = failed.index_put((rows,), _ask(search, points, rows)[rows])
    search.distance = search.distance.masked_fill(failed, torch.inf)
    search.winner = search.winner.masked_fill(failed, -1)
    search.adversarial = torch.where(per_image(failed, search.x).bool(), search.x, search.adversarial)


def _nearer_ties(search: Search) -> Tensor:
    """Images with a tie that is nearer than what was found, by more than rounding, and a budget to ask about it."""
    if search.ties is None:
        return torch.zeros_like(search.found)
    return (search.ties.distance < (1 - CREDIT) * search.distance) & search.affords(1)


def _take_ties(search: Search) -> None:
    """Replace adversarial images by nearer ties, moved towards the clean image as far as they stay ties."""
    rows = _where(_nearer_ties(search))
    if len(rows) == 0 or search.ties is None:
        return
    points = search.ties.points[rows]
    holds = _where(_alone(search, points, rows) >= 0)
    rows, points = rows[holds], points[holds]
    if search.budget is None and not search.on_grid:
        points = _shortened(search, points, rows)
    search.adversarial[rows] = points
    search.distance[rows] = search.threat.norm(points - search.x[rows])
    search.winner[rows] = search.ties.attack[rows]


def _shortened(search: Search, points: Tensor, rows: Tensor) -> Tensor:
    """Bisect the segment from the clean image for the first point that is not right, asking each alone."""
    x, far = search.x[rows], torch.ones(len(rows), device=points.device, dtype=search.distance.dtype)
    near, best = torch.zeros_like(far), points
    for _ in range(_HALVINGS if len(rows) else 0):
        share = (near + far) / 2
        trial = search.clamp(x + per_image(share, x) * (points - x))
        wrong = _alone(search, trial, rows) >= 0
        far, near = torch.where(wrong, share, far), torch.where(wrong, near, share)
        best = torch.where(per_image(wrong, x).bool(), trial, best)
    return best


def _alone(search: Search, points: Tensor, rows: Tensor) -> Tensor:
    margins = margins_alone(search.classifier, points, search.y[rows], rows, search.topk)
    search.broken |= ~margins.isfinite().all()
    return margins


def margins_alone(classifier: Classifier, points: Tensor, y: Tensor, images: Tensor, topk: int) -> Tensor:
    """The margin of each point by a forward of a batch of one: what somebody who looks at it will see.

    `images` are those that the forwards count for.
    """
    with torch.no_grad():
        logits = [classifier(points[i : i + 1], images[i : i + 1]) for i in range(len(points))]
    return margin(torch.cat(logits), y, topk) if logits else points.new_empty(0)
