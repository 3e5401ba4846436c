"""What an attack found, asked once more: every adversarial image alone in a batch of one, and ties on the way to it."""

import torch
from torch import Tensor

from gradreg.attacks.search import CREDIT, Search
from gradreg.classifier import Classifier
from gradreg.losses import margin
from gradreg.norms import per_image

# How far an image that fails alone is pushed outwards before it is given up.
_PUSHES = (1.0001, 1.001, 1.01, 1.1)
_HALVINGS = 10


def verify(search: Search, *, push: bool) -> None:
    """Keep what is misclassified when asked alone; push out what is not, or give it up.

    The label is strictly behind at what is kept. A point where it is level with a rival counts as an error too, as it
    does for clean images, but only if it is nearer by more than rounding: any walk to a boundary ends in ties that
    another batch size breaks.
    """
    _confirm(search, push=push)
    if search.ties is not None:
        _take_ties(search)


def _confirm(search: Search, *, push: bool) -> None:
    delta = search.delta
    pending = search.found & (search.distance > 0)
    for factor in (1.0, *_PUSHES) if push else (1.0,):
        rows = pending.nonzero().flatten()
        if len(rows) == 0:
            return
        points = search.clamp(search.x[rows] + factor * delta[rows]) if factor > 1 else search.adversarial[rows]
        search.adversarial[rows] = points
        search.distance[rows] = search.threat.norm(points - search.x[rows])
        pending = pending.index_put((rows,), _alone(search, points, rows) <= 0)
    search.distance = search.distance.masked_fill(pending, torch.inf)
    search.winner = search.winner.masked_fill(pending, -1)
    search.adversarial = torch.where(per_image(pending, search.x).bool(), search.x, search.adversarial)


def _take_ties(search: Search) -> None:
    """Replace adversarial images by nearer ties, moved towards the clean image as far as they stay ties."""
    assert search.ties is not None
    nearer = search.ties.distance < (1 - CREDIT) * search.distance
    rows = (nearer & search.affords(1)).nonzero().flatten()
    if len(rows) == 0:
        return
    points = search.ties.points[rows]
    holds = _alone(search, points, rows) >= 0
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
    return margins_alone(search.classifier, points, search.y[rows], rows, search.topk)


def margins_alone(classifier: Classifier, points: Tensor, y: Tensor, images: Tensor, topk: int) -> Tensor:
    """The margin of each point by a forward of a batch of one: what somebody who looks at it will see.

    `images` are those that the forwards count for.
    """
    with torch.no_grad():
        logits = [classifier(points[i : i + 1], images[i : i + 1]) for i in range(len(points))]
    return margin(torch.cat(logits), y, topk) if logits else points.new_empty(0)
