"""Boundary attack: a random walk along the decision boundary that uses predicted labels only."""

import torch
import torch.nn.functional as F
from torch import Tensor

from gradreg.attacks.geometry import inner
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.attacks.start import find_start
from gradreg.checks.scalars import Below1, Count
from gradreg.norms import Linf, per_image

# Forwards between two checks of whether an image still improves.
_WINDOW = 200
# Forwards per turn that are not probes: angles that are tried, then steps of a bisection.
_ANGLES, _HALVINGS = 3, 3
# Rows per call of the model: with fewer images, several probes share a call.
_TOGETHER = 64


@attack_on()
def boundary(search: Search, steps: Count = 1000, stall: Below1 = 0.08) -> None:
    """Random steps along the boundary, then towards the clean image, kept if adversarial (Brendel et al. 2018).

    l2: the labels of many random steps together show which way the boundary comes nearer (Chen, Jordan & Wainwright
    2020), and three of four turns look for smooth changes only (Brunner et al. 2019). l∞: single steps between corners
    of the cube. `steps` are forwards; an image whose distance fell by less than the fraction `stall` in 200 of them is
    done. Starts from the best adversarial image known, or finds one; images without one are skipped. It uses neither
    gradients nor scores: where it beats gradient attacks, gradients are masked.
    """
    find_start(search)
    if type(search.threat.core) is Linf:
        _corners(search, steps, stall)
    else:
        _turns(search, steps, stall)


class _Stall:
    """Retires the images that improve too little in a window."""

    def __init__(self, search: Search, share: float) -> None:
        self._search, self._share = search, share
        self._noted, self._since = search.distance, 0

    def look(self, used: int) -> None:
        if used - self._since >= _WINDOW:
            distance = self._search.distance
            self._search.retire(distance > (1 - self._share) * self._noted)
            self._noted, self._since = distance, used


def _turns(search: Search, steps: int, stall: float) -> None:
    """Estimate the way, turn as far as it stays adversarial, go down to the boundary, and again with more probes."""
    angle = torch.full_like(search.distance, 0.3)
    reach = torch.full_like(search.distance, 0.1)
    used = turn = 0
    watch = _Stall(search, stall)
    while (left := steps - used - _ANGLES - _HALVINGS) > 3:
        probes = min(left, int(10 * (turn + 1) ** 0.5))
        way, share = _way(search, used, probes, reach, smooth=turn % 4 < 3)
        # Few labels differ where the probes reach too far along a boundary that bends away.
        reach = torch.where(share < 0.3, 0.7 * reach, torch.where(share > 0.45, 1.2 * reach, reach)).clamp(1e-3, 0.5)
        angle = _turned(search, way, angle)
        _down(search, (1 - angle.cos()).clamp(1e-3, 0.05))
        used += probes + _ANGLES + _HALVINGS
        turn += 1
        watch.look(used)


def _way(search: Search, draw: int, probes: int, reach: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
    """Where, at a right angle to δ, the boundary comes nearer, as a unit vector; and how many probes are adversarial.

    The mean of adversarial probes minus the mean of all probes, which removes what they have in common. Angles and
    lengths are those of l2, in core coordinates.
    """
    rows = search.searched(probes)
    threat, best = search.threat, search.adversarial[rows]
    delta = threat.to_core(search.delta[rows])
    towards = _unit(delta)
    radius = per_image(reach[rows] * inner(delta, delta).sqrt(), best)
    hits = torch.zeros_like(reach[rows])
    struck, total = torch.zeros_like(best), torch.zeros_like(best)
    for part in torch.arange(draw, draw + probes).split(max(1, _TOGETHER // len(rows))):
        noise = torch.stack([_noise(search, int(number), rows, smooth) for number in part])
        across = (noise * towards).flatten(2).sum(2).view(len(part), -1, *[1] * (best.ndim - 1))
        noise -= across * towards
        length = torch.linalg.vector_norm(noise.flatten(2), dim=2).clamp(min=_least(best)).view_as(across)
        steps = threat.from_core(noise.mul_(radius / length).flatten(0, 1)).view_as(noise)
        points = search.clamp(best + steps)
        hit = search.sides(points, rows).to(best.dtype)
        moved = threat.to_core(points.sub_(best).flatten(0, 1)).view_as(noise)
        # One after the other: sums of parts depend on how many probes share a call, and so on the batch.
        for one, by in zip(moved, hit, strict=True):
            hits, total = hits + by, total + one
            struck = struck + per_image(by, one) * one
    share = hits / probes
    way = struck - per_image(share, best) * total
    way = _unit(way - per_image(inner(way, towards), best) * towards)
    return torch.zeros_like(search.x).index_copy(0, rows, way), torch.zeros_like(reach).index_copy(0, rows, share)


def _noise(search: Search, draw: int, rows: Tensor, smooth: bool) -> Tensor:
    """−1 or 1 at random; `smooth`: on every second row and column, and in between for the other pixels."""
    x = search.x[rows]
    if not smooth or x.ndim != 4 or min(x.shape[-2:]) < 8:
        return search.uniform(draw, x, rows).round().mul_(2).sub_(1).to(x.dtype)
    coarse = search.uniform(draw, x[..., ::2, ::2], rows).round().mul_(2).sub_(1)
    return F.interpolate(coarse, size=x.shape[-2:], mode="bilinear", align_corners=False).to(x.dtype)


def _turned(search: Search, way: Tensor, angle: Tensor) -> Tensor:
    """Try points on the circle over the segment to the clean image, where a flat boundary's nearest point lies too.

    At angle φ the distance shrinks by cos φ: in l2 that is where the circle ends, in other norms it is a little shorter
    than where the step aside leads. Returns the angle to begin with the next time.
    """
    x, threat, far = search.x, search.threat, search.distance.where(search.found, 0)
    delta = threat.to_core(search.delta)
    length = inner(delta, delta).sqrt()
    within, beyond, trial = torch.zeros_like(angle), torch.full_like(angle, torch.inf), angle
    for _ in range(_ANGLES):
        aside = delta + per_image(length * trial.tan(), x) * way
        kept = search.margin(x + threat.retract(threat.from_core(aside), far * trial.cos())) > 0
        within, beyond = torch.where(kept, trial, within), torch.where(kept, beyond, trial)
        between = torch.where(within > 0, (within + beyond) / 2, trial / 2)
        trial = torch.where(beyond.isinf(), (2 * trial).clamp(max=1.4), between)
    return torch.where(within > 0, within, trial).clamp(1e-3, 1.2)


def _down(search: Search, gap: Tensor) -> None:
    """Down the segment to the clean image by growing gaps until a point is not adversarial, then bisect."""
    delta = search.delta
    upper, lower = torch.ones_like(gap), torch.zeros_like(gap)
    for _ in range(_HALVINGS):
        share = torch.where(lower > 0, (lower + upper) / 2, upper - gap)
        kept = search.margin(search.x + per_image(share, delta) * delta) > 0
        upper, lower, gap = torch.where(kept, share, upper), torch.where(kept, lower, share), 3 * gap


def _corners(search: Search, steps: int, stall: float) -> None:
    """The solution of a linear model is a corner of the cube: turn some of the pixels to a random side of it."""
    x, threat = search.x, search.threat
    across = torch.full_like(search.distance, 0.1)
    inwards = torch.full_like(search.distance, 0.02)
    watch = _Stall(search, stall)
    for step in range(steps):
        far, luck, share = search.distance, search.uniform(step), per_image(across, x)
        delta = threat.to_core(search.delta)
        side = torch.where(luck < share / 2, -1.0, 1.0).to(x.dtype)
        turned = torch.where(luck < share, side * per_image(far, x), delta)
        kept = search.margin(x + threat.from_core(threat.core.project(turned, far * (1 - inwards)))) > 0
        across = _adapt(across, kept)
        inwards = torch.minimum(_adapt(inwards, kept), across / 2)
        search.retire(across < 1e-5)
        watch.look(step + 1)


def _adapt(size: Tensor, kept: Tensor) -> Tensor:
    """Grow after a success and shrink after a failure, balanced where one step in four succeeds."""
    return torch.where(kept, size * 1.06, size * 1.06 ** (-1 / 3)).clamp(max=1.0)


def _unit(v: Tensor) -> Tensor:
    return v / per_image(inner(v, v).sqrt().clamp(min=_least(v)), v)


def _least(v: Tensor) -> float:
    return torch.finfo(v.dtype).tiny
