"""APGD: projected gradient ascent that chooses its own step size."""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from gradreg.attacks.radii import smallest_radius
from gradreg.attacks.rivals import lead, rivals
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Loss, Search
from gradreg.checks.objects import Words
from gradreg.checks.scalars import Count
from gradreg.losses import cross_entropy, margin
from gradreg.norms import per_image

_Losses = Annotated[
    Sequence[str], Words("ce|dlr|t[1-9][0-9]{0,5}", "'ce', 'dlr', or 't1', 't2', … for the rival classes")
]


@attack_on()
def apgd(search: Search, steps: Count = 25, rounds: Count = 10, losses: _Losses = ("dlr", "ce")) -> None:
    """Auto-PGD (Croce & Hein 2020, algorithm 1): momentum, and a step that is halved when progress stalls.

    Losses: cross entropy "ce", the difference-of-logits ratio "dlr", and "t1", "t2", … which targets the nearest,
    second nearest, … rival class. A round uses one loss, in turn. With radii there is a round for each loss;
    without, the radius of each image is bisected over the rounds, from the best adversarial image known.
    """
    chosen = [_loss(search, name) for name in losses]

    def inside(radius: Tensor, number: int) -> None:
        loss, extra = chosen[number % len(chosen)]
        warm = search.found & (not search.fixed_radius)
        known = per_image(warm, search.x) * search.threat.retract(search.delta, radius)
        _ascend(search, radius, steps, known.to(search.x.dtype), loss, *extra)

    smallest_radius(search, inside, len(chosen) if search.fixed_radius else rounds)


def _ascend(search: Search, radius: Tensor, steps: int, delta: Tensor, loss: Loss, *extra: Tensor) -> None:
    x, threat = search.x, search.threat

    def into(delta: Tensor) -> Tensor:
        return search.clamp(x + threat.retract(delta, radius)) - x

    previous = best = delta
    _, best_loss, gradient = search.loss_and_gradient(x + delta, loss, *extra)
    best_gradient, last_loss = gradient, best_loss
    step_size = 2 * radius
    rises = torch.zeros_like(radius)
    best_before, halved_before = best_loss, torch.ones_like(radius, dtype=torch.bool)
    checks, last = _checkpoints(steps), 0
    for step in range(1, steps):
        straight = into(delta + per_image(step_size, x) * threat.climb(gradient))
        share = 0.75 if step > 1 else 1.0
        following = into(delta + share * (straight - delta) + (1 - share) * (delta - previous))
        previous, delta = delta, following
        _, height, gradient = search.loss_and_gradient(x + delta, loss, *extra)
        rises = rises + (height > last_loss)
        last_loss, better = height, height > best_loss
        chosen = per_image(better, x).bool()
        best, best_gradient = torch.where(chosen, delta, best), torch.where(chosen, gradient, best_gradient)
        best_loss = torch.maximum(height, best_loss)
        if step in checks:
            halve = (rises < 0.75 * (step - last)) | (~halved_before & (best_loss <= best_before))
            restart = per_image(halve, x).bool()
            step_size = torch.where(halve, step_size / 2, step_size)
            delta, gradient = torch.where(restart, best, delta), torch.where(restart, best_gradient, gradient)
            previous = torch.where(restart, best, previous)
            last_loss = torch.where(halve, best_loss, last_loss)
            best_before, halved_before, rises, last = best_loss, halve, torch.zeros_like(rises), step


def _checkpoints(steps: int) -> set[int]:
    """Where progress is checked: after 22 % of the steps, then at intervals that shrink by 3 % down to 6 %."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    return {max(round(share * steps), 1) for share in shares[1:]}


def _loss(search: Search, name: str) -> tuple[Loss, tuple[Tensor, ...]]:
    if name == "ce":
        return cross_entropy, ()
    if name == "dlr":
        return lambda logits, y: margin(logits, y, search.topk) / _spread(logits, search.topk + 1), ()
    return _targeted, (rivals(search, int(name[1:])),)


def _targeted(logits: Tensor, y: Tensor, targets: Tensor) -> Tensor:
    return lead(logits, y, targets) / _spread(logits, targets.shape[1] + 1)


def _spread(logits: Tensor, place: int) -> Tensor:
    """The largest logit minus the one `place` ranks below it; 1 where there are too few classes."""
    if logits.shape[1] <= place:
        return torch.ones_like(logits[:, 0])
    ordered = logits.topk(place + 1).values
    return (ordered[:, 0] - ordered[:, place]).clamp(min=torch.finfo(logits.dtype).tiny)
