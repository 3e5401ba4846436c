"""The search that all attacks share: what is adversarial, the best found so far, the box, who is still searched.

An attack holds tensors with a row for every image and says where to look next. The core evaluates only the rows that
are not finished, records every adversarial image it sees, and counts. When nobody is left it raises `Finished`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gradreg.classifier import Classifier, Queries
from gradreg.errors import ModelError
from gradreg.losses import margin, soft_margin
from gradreg.norms import Threat, per_image
from gradreg.precision import at_least_single
from gradreg.randomness import Streams

Loss = Callable[..., Tensor]

# A margin must exceed the rounding of the logits, or the same image in a batch of another size may not be adversarial.
_ROUNDING = 16.0
# Who shortens what another attack found by less than this share has not found it: a random step on the spot does that.
_CREDIT = 1e-3


class Finished(Exception):  # noqa: N818 - it ends an attack, and nothing went wrong
    """No image is left to search, or the budget is spent."""


def calls_between_looks(device: torch.device) -> int:
    """How many evaluations go by before finished images are left out: looking makes an accelerator wait."""
    return 1 if device.type == "cpu" else 8


class Search:
    """A batch of clean images, and the nearest adversarial image known for each: `distance`, `adversarial`, `winner`.

    An image is finished when `distance` has reached its `goal` (0: never), or when the attack has retired it.
    """

    def __init__(
        self,
        classifier: Classifier,
        x: Tensor,
        y: Tensor,
        threat: Threat,
        logits: Tensor,
        *,
        topk: int = 1,
        seed: int = 0,
        queries: Queries | None = None,
        budget: int | None = None,
    ) -> None:
        self.classifier, self.threat, self.topk = classifier, threat, topk
        self.queries, self.budget = queries, budget
        self.x, self.y, self.logits = x, y, logits
        self.low, self.high = classifier.box
        extent = logits.amax(1, keepdim=True) - logits.amin(1, keepdim=True)
        self._scale = 1 / extent.where(extent > 0, 1)
        misclassified = margin(logits, y, topk) > 0
        self.distance = torch.full((len(x),), torch.inf, dtype=at_least_single(x.dtype), device=x.device)
        self.distance.masked_fill_(misclassified, 0)
        self.adversarial = x.clone()
        self.winner = torch.full_like(y, -1)
        self.goal = torch.zeros_like(self.distance)
        self.fixed_radius = False
        self._streams = Streams(seed, x, y)
        self._attack, self._claims, self._calls = -1, True, 0
        self._before = self.distance
        self._every = calls_between_looks(x.device)
        self._broken = torch.zeros((), dtype=torch.bool, device=x.device)
        self._retired = misclassified
        self._rows: Tensor | None = None
        self.ranking: Tensor | None = None
        self.ranked: Tensor | None = None

    def begin(self, attack: int, claims: bool = True) -> None:
        """Another attack takes over: everyone who has not reached the goal is searched again.

        One that only improves what others found does not claim it, nor does one that gains next to nothing: they stay
        the winners.
        """
        self._attack, self._claims, self._before = attack, claims, self.distance
        self._calls = 0
        self._retired = self.distance == 0
        self._compact()

    def aim(self, goal: Tensor) -> None:
        """Ask only whether there is an adversarial image within `goal`, an image's own radius."""
        self.goal, self.fixed_radius = goal, True

    def within(self, radius: Tensor, run: Callable[[], object]) -> None:
        """Run a part of an attack in which an image is finished as soon as it is adversarial within its `radius`."""
        goal, retired = self.goal, self._retired
        self.goal = torch.maximum(goal, radius)
        try:
            self._compact()
            run()
        except Finished:
            pass
        finally:
            # Who was left out of this part is searched again from the next call on.
            self.goal, self._retired, self._calls = goal, retired, 0

    @property
    def anywhere(self) -> Tensor:
        """A radius that is reached by any adversarial image."""
        return torch.full_like(self.distance, torch.finfo(self.distance.dtype).max)

    def retire(self, finished: Tensor) -> None:
        """The attack has nothing more to try on these images."""
        self._retired = self._retired | finished

    def check_finite(self) -> None:
        """Refuse to go on after logits that are not finite."""
        if bool(self._broken):
            raise ModelError("The model's logits are not finite for a perturbed image: look for overflow or 0/0 in it.")

    def live(self, ahead: int = 0) -> Tensor:
        """Images that are neither finished nor out of budget, with so many propagations `ahead` at least."""
        live = ~(self._retired | (self.distance <= self.goal))
        if self.budget is not None and self.queries is not None:
            ahead = max(ahead, 2 * self._every)
            live = live & (self.queries.forwards + self.queries.backwards + ahead <= self.budget)
        return live

    @property
    def found(self) -> Tensor:
        """Images for which an adversarial image is known."""
        return self.distance.isfinite()

    @property
    def delta(self) -> Tensor:
        """The smallest adversarial perturbation known, 0 where there is none."""
        return self.adversarial - self.x

    def clamp(self, points: Tensor) -> Tensor:
        """The nearest point of the box."""
        return points.clamp(self.low, self.high)

    def margin(self, points: Tensor) -> Tensor:
        """The margin on logits less their rounding, one forward; positive is adversarial."""
        self._next()
        points = self._take(self.clamp(points))
        with torch.no_grad():
            logits = self.classifier(points, self._rows)
        return self._spread(self._record(points, logits))

    def searched(self, ahead: int) -> Tensor:
        """The numbers of the images that are searched and have so many propagations `ahead`."""
        self._compact(ahead)
        assert self._rows is not None
        return self._rows

    def sides(self, points: Tensor, rows: Tensor) -> Tensor:
        """Which of several points of these images, (count, rows, …), are adversarial: a forward each, none recorded."""
        count = len(points)
        with torch.no_grad():
            logits = self.classifier(points.flatten(0, 1), rows.repeat(count))
        return (self._reached(logits, self.y[rows].repeat(count)) > 0).view(count, -1)

    def margin_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The margin and its gradient, one forward and one backward."""
        reached, _, gradient = self.loss_and_gradient(points, lambda logits, y: margin(logits, y, self.topk))
        return reached, gradient

    def soft_margin_and_gradient(self, points: Tensor, sharpness: float) -> tuple[Tensor, Tensor, Tensor]:
        """The margin, and the soft margin of logits in units of their range at the clean image, with its gradient.

        Its gradient has the direction of the cross entropy's, mixing all rivals, but does not vanish where the model
        is sure. A soft margin is of top-1; for top-k the margin itself is taken.
        """
        if self.topk > 1:
            hard, gradient = self.margin_and_gradient(points)
            return hard, hard, gradient
        return self.loss_and_gradient(points, lambda z, y, s: soft_margin(z * s, y, sharpness), self._scale)

    def loss_and_gradient(self, points: Tensor, loss: Loss, *extra: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The margin, and `loss(logits, y, *extra)` with its gradient; `extra` has a row for each image."""
        self._next()
        points = self._take(self.clamp(points))
        parts = [self._take(tensor) for tensor in extra]
        seen: list[Tensor] = []

        def tapped(logits: Tensor, y: Tensor, /) -> Tensor:
            seen.append(logits.detach())
            return loss(logits, y, *parts)

        losses, gradient = self.classifier.loss_and_gradient(points, self._take(self.y), tapped, self._rows)
        reached = self._record(points, seen[0])
        gradient = gradient.to(self.x.dtype).nan_to_num(0.0, 0.0, 0.0)
        return self._spread(reached), self._spread(losses), self._spread(gradient)

    def uniform(self, draw: int, like: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """Uniform random numbers of each image's own stream (of those `rows`), shaped like `like` or the images."""
        return self._streams.uniform(self.x if like is None else like, draw, self._attack, rows)

    def normal(self, draw: int) -> Tensor:
        """Normal random numbers of each image's own stream."""
        return self._streams.normal(self.x, draw, self._attack)

    def _reached(self, logits: Tensor, y: Tensor) -> Tensor:
        rounding = _ROUNDING * torch.finfo(logits.dtype).eps
        reached = (margin(logits, y, self.topk) - rounding * logits.abs().amax(1)).to(self.distance.dtype)
        self._broken |= ~reached.isfinite().all()
        return reached

    def _record(self, points: Tensor, logits: Tensor) -> Tensor:
        known = self._take(self.distance)
        reached = self._reached(logits, self._take(self.y))
        distance = self.threat.norm(points - self._take(self.x))
        better = (reached > 0) & (distance < known)
        if self._every == 1 and not bool(better.any()):
            # Where a look costs nothing it saves copying all images for none that improved.
            return reached
        self.distance = self._spread(distance.where(better, known), self.distance)
        if self._claims:
            won = better & (distance < (1 - _CREDIT) * self._take(self._before))
            self.winner = self._spread(self._take(self.winner).masked_fill(won, self._attack), self.winner)
        nearest = torch.where(per_image(better, points).bool(), points, self._take(self.adversarial))
        self.adversarial = self._spread(nearest, self.adversarial)
        return reached

    def _next(self) -> None:
        if self._calls % self._every == 0:
            self._compact()
        self._calls += 1

    def _compact(self, ahead: int = 0) -> None:
        """Leave out who is finished or has spent the budget: the one place that waits for the device."""
        self.check_finite()
        self._rows = self.live(ahead).nonzero().flatten()
        if len(self._rows) == 0:
            raise Finished

    def _take(self, tensor: Tensor) -> Tensor:
        return tensor if self._rows is None or len(self._rows) == len(tensor) else tensor[self._rows]

    def _spread(self, part: Tensor, onto: Tensor | None = None) -> Tensor:
        """Rows of the searched images, put back among those of all; zeros for the others if there is nothing else."""
        if self._rows is None or len(part) == len(self.x):
            return part
        onto = part.new_zeros(len(self.x), *part.shape[1:]) if onto is None else onto
        return onto.index_copy(0, self._rows, part)
