"""The search around single images that "local" makes: about fifty gradients per image.

The ω-bound ends where ω(ε) + ε‖∇ℓ‖_* first reaches the gap ℓ₀ − ℓ(x), and where a model is confident ∇ℓ is nearly 0: to
find ω is then to attack. So the search goes as a minimum-norm attack does, towards one rival class after the other, to
where the loss reaches ℓ₀. It sweeps through all radii before that and climbs the error where the bound ends after it.

Every point it passes counts: its norm, the first-order error there and the rise of the loss.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.bounds.ascent import Surroundings, climb_gradient, random_directions
from gradreg.bounds.solve import roots
from gradreg.norms import per_image

# Radii of the sweep; the smallest is the largest over 2⁵.
_SWEPT = 6
# So many more rivals are ranked than are searched: the likeliest classes are not always the nearest.
_SPARE = 2
# A step towards a rival that was reached ends this much nearer, at first; one that was not, at most so much farther.
_NEARER, _FARTHER = 0.1, 1.5
# Aimed at, the crossing is passed by so much: on a linear model rounding would otherwise decide which side it is.
_BEYOND = 1e-3
# Relative; norms that differ by less are the same.
_ROUNDING = 1e-6
# The next point must be nearer than the nearest crossing, or just within the radius where the bound ends.
_WITHIN = 0.985


@dataclass(frozen=True)
class Effort:
    """How long to search: `steps` towards each of `rivals` classes, a tenth of that at each radius of each sweep."""

    steps: int
    restarts: int
    rivals: int
    lipschitz_steps: int


@dataclass(frozen=True)
class Found:
    """What the search around each image has found."""

    errors: Tensor
    """(images, radii): the largest first-order error within each radius."""
    steepest: Tensor
    """The largest slope of the loss: a gradient's dual norm, or a rise over its distance."""
    crossing: Tensor
    """Norm of the nearest v with ℓ(x + v) ≥ ℓ₀; infinite where there was none."""


def explore(around: Surroundings, radii: Tensor, topk: int, effort: Effort, keys: list[int], seed: int) -> Found:
    """Search around each image, up to the last of the radii."""
    trail = _Trail(around)
    end = float(radii[-1])
    for restart in range(effort.restarts):
        start = (
            around.threat.ascent(around.gradient)
            if restart == 0
            else random_directions(around, keys, seed, f"ascent/{restart}")
        )
        _sweep(trail, _few(radii), start, max(1, effort.steps // 10))
    _cross(trail, end, topk, effort)
    _focus(trail, end, max(1, effort.steps // 2))
    steepest = climb_gradient(around, end, effort.lipschitz_steps, keys, seed)
    return Found(trail.errors_within(radii), trail.steepest.maximum(steepest.double()), trail.crossing)


class _Trail:
    """Every point that was passed, per image; the nearest crossing among them is kept to go on from."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.norms: list[Tensor] = []
        self.errors: list[Tensor] = []
        # A misclassified image has no bound, and nothing to reach.
        self.gap = around.gap.double().where(around.gap > 0, torch.inf)
        self.slope = around.threat.dual_norm(around.gradient).double()
        self.steepest = self.slope
        self.crossing = torch.full_like(self.gap, torch.inf)
        self.nearest = torch.zeros_like(around.x)

    def climb(self, v: Tensor) -> Tensor:
        """Pass x + v; the gradient of the error there."""
        error, gradient = self.around.error_and_gradient(v)
        self._pass(v, error)
        self.steepest = self.steepest.maximum(self.around.threat.dual_norm(gradient).double())
        return gradient - self.around.gradient

    def lead(self, v: Tensor, rival: "_Rival") -> tuple[Tensor, Tensor, Tensor]:
        """Pass x + v; the rise of the loss, and the rival's lead with its gradient there."""
        error, height, gradient = self.around.error_and_climb(v, rival)
        return self._pass(v, error), height.double(), gradient

    def _pass(self, v: Tensor, error: Tensor) -> Tensor:
        around = self.around
        norm, error = around.threat.norm(v).double(), error.double()
        rise = error + (v * around.gradient).flatten(1).sum(1)
        self.norms.append(norm)
        self.errors.append(error)
        slope = (rise / norm).where(norm > 0, 0)
        self.steepest = self.steepest.maximum(slope)
        nearer = (rise >= self.gap) & (norm < self.crossing)
        self.crossing = norm.where(nearer, self.crossing)
        self.nearest = torch.where(per_image(nearer.to(v.dtype), v) > 0, v, self.nearest)
        return rise

    def _curve(self) -> tuple[Tensor, Tensor]:
        """Norms ascending, with the largest error within each."""
        norms, order = torch.stack(self.norms, 1).sort(1)
        errors = torch.stack(self.errors, 1).gather(1, order).clamp(min=0)
        # Many points lie on one sphere but for rounding, which must not decide which of them comes first.
        apart = norms[:, 1:] > norms[:, :-1] * (1 + _ROUNDING)
        sphere = torch.cat([torch.zeros_like(order[:, :1]), apart.cumsum(1)], 1)
        largest = torch.zeros_like(errors).scatter_reduce(1, sphere, errors, "amax")
        return norms, largest.gather(1, sphere).cummax(1).values

    def end_of_bound(self) -> Tensor:
        """The ω-bound by what was found so far; infinite where it has not ended yet."""
        norms, errors = self._curve()
        radius, censored = roots(self.gap, self.slope, norms, errors, "linear")
        return radius.where(~censored, torch.inf)

    def errors_within(self, radii: Tensor) -> Tensor:
        """The largest error within each radius, straight between the points that were passed."""
        norms, errors = self._curve()
        zero = torch.zeros_like(norms[:, :1])
        norms, errors = torch.cat([zero, norms], 1).contiguous(), torch.cat([zero, errors], 1)
        asked = radii.to(norms).expand(len(norms), -1).contiguous()
        after = torch.searchsorted(norms, asked, right=True)
        left, right = after - 1, after.clamp(max=norms.shape[1] - 1)
        low, high = norms.gather(1, left), norms.gather(1, right)
        share = ((asked - low) / (high - low)).where(high > low, 0)
        return errors.gather(1, left).lerp(errors.gather(1, right), share).cummax(1).values


@dataclass(frozen=True)
class _Rival:
    """How far a class is ahead of the true one, on logits; for top-k, the last among it and the k − 1 likeliest."""

    classes: Tensor
    """(images, k)."""

    def __call__(self, logits: Tensor, y: Tensor, /) -> Tensor:
        return logits.gather(1, self.classes).amin(1) - logits.gather(1, y[:, None]).squeeze(1)


def _few(radii: Tensor) -> list[float]:
    """All radii if they are few, else some of them, by and by farther apart."""
    given: list[float] = radii.tolist()
    if len(given) <= _SWEPT:
        return given
    return [given[-1] / 2**halvings for halvings in reversed(range(_SWEPT))]


def _sweep(trail: _Trail, radii: list[float], direction: Tensor, steps: int) -> None:
    """Climb the error through growing radii."""
    around = trail.around
    v, before = direction * radii[0], radii[0]
    for radius in radii:
        v = around.fill(v * (radius / before), radius)
        for _ in range(steps):
            v = around.fill(v + around.threat.climb(trail.climb(v)) * radius, radius)
        before = radius


def _cross(trail: _Trail, end: float, topk: int, effort: Effort) -> None:
    """Look for the nearest v at which the loss reaches ℓ₀, towards one rival after the other."""
    if effort.rivals == 0:
        return
    around, threat, gap = trail.around, trail.around.threat, trail.gap
    last = torch.full_like(gap, end)
    for rival, gradient, behind, far in _nearest_rivals(around, topk, effort.rivals):
        radius = (far * (1 + _NEARER)).where(far > 0, end).minimum(trail.crossing).minimum(last)
        v = around.fill(_scaled(threat.ascent(gradient), radius, threat.norm), radius)
        for step in range(effort.steps):
            rise, height, gradient = trail.lead(v, rival)
            remaining = 1 - step / effort.steps
            norm = threat.norm(v).double()
            # How much of the way is done: by the loss, or by the logits, which do not saturate as probabilities do.
            done = (rise / gap).maximum(1 + height / behind)
            # If it went on in proportion to the distance, the loss would reach ℓ₀ here.
            farther = ((1 + _BEYOND) * norm / done).where(done > 1 / _FARTHER, _FARTHER * norm)
            # Far beyond ℓ₀, go half of the way to there at once.
            nearer = norm * (1 - (0.5 - 0.5 / done).clamp(min=_NEARER * remaining))
            radius = torch.where(rise >= gap, nearer, farther.maximum((1 + _BEYOND) * norm))
            radius = radius.minimum(_WITHIN * trail.crossing).minimum(last)
            move = threat.climb(gradient) * per_image(radius * remaining, v).to(v.dtype)
            v = around.fill(_scaled(v, radius, threat.norm) + move, radius)


def _nearest_rivals(around: Surroundings, topk: int, rivals: int) -> list[tuple[_Rival, Tensor, Tensor, Tensor]]:
    """Rival classes by the distance of their linearised boundaries: with the lead's gradient, how far it is behind on
    logits, and that distance.
    """
    threat, y = around.threat, around.y
    with torch.no_grad():
        logits = around.classifier(around.x)
    others = logits.scatter(1, y[:, None], -torch.inf)
    ranked = others.topk(min(topk - 1 + rivals + _SPARE, others.shape[1] - 1)).indices
    leaders, followers = ranked[:, : topk - 1], ranked[:, topk - 1 :]
    found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for follower in followers.T:
        rival = _Rival(torch.cat([leaders, follower[:, None]], 1))
        _, height, gradient = around.error_and_climb(torch.zeros_like(around.x), rival)
        behind = -height.double().clamp(max=0)
        far = (behind / threat.dual_norm(gradient).double()).nan_to_num(torch.inf, torch.inf)
        found.append((rival.classes, gradient, behind, far))
    classes, gradients, gaps, distances = (torch.stack(column, 1) for column in zip(*found, strict=True))
    nearest = distances.sort(dim=1, stable=True)
    rows = torch.arange(len(y), device=y.device)
    return [
        (_Rival(classes[rows, place]), gradients[rows, place], gaps[rows, place], distance)
        for distance, place in zip(nearest.values.T[:rivals], nearest.indices.T[:rivals], strict=True)
    ]


def _focus(trail: _Trail, end: float, steps: int) -> None:
    """Climb the error just within the radius where the bound ends, and follow it inwards."""
    around, threat = trail.around, trail.around.threat
    v = trail.nearest.where(per_image(trail.crossing, around.x) < torch.inf, threat.ascent(around.gradient))
    for step in range(steps):
        radius = _WITHIN * trail.end_of_bound().clamp(max=end)
        v = around.fill(_scaled(v, radius, threat.norm), radius)
        move = threat.climb(trail.climb(v)) * per_image(radius * (1 - step / steps), v).to(v.dtype)
        v = v + move


def _scaled(v: Tensor, radius: Tensor, norm: Callable[[Tensor], Tensor]) -> Tensor:
    """`v` of that norm; where it is zero it stays."""
    length = norm(v).double()
    return v * per_image((radius / length).where(length > 0, 0), v).to(v.dtype)
