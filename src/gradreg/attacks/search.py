"""The search that all attacks share: what is adversarial, the best found so far, the box, which images are active.

An attack holds tensors with one row per image and decides where to look next. The core evaluates only the rows that
are not finished, records every adversarial image, and counts. When no image is left it raises `Finished`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gradreg.classifier import Classifier, Queries
from gradreg.errors import ModelError
from gradreg.losses import margin, misclassified, soft_margin
from gradreg.norms import Threat, per_image
from gradreg.precision import at_least_single
from gradreg.randomness import Streams

Loss = Callable[..., Tensor]

# A margin must exceed the rounding of the logits, or the same image in a batch of another size may not be adversarial.
_ROUNDING = 16.0
# Improvements below this fraction earn no credit.
_CREDIT = 1e-3


class Finished(Exception):  # noqa: N818 - it ends an attack and is no error
    """No image is left to search, or the budget is spent."""


def _calls_between_looks(device: torch.device) -> int:
    """Evaluations between two removals of finished images: each one makes an accelerator wait."""
    return 1 if device.type == "cpu" else 8


def least_budget(device: torch.device) -> int:
    """The smallest budget that allows a query: two forwards that check the model, the query, one that verifies."""
    return 2 + 2 * _calls_between_looks(device) + 1


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
        self.scale = 1 / extent.where(extent > 0, 1)
        """Per image, what makes the range of its logits 1, (N, 1)."""
        wrong = misclassified(logits, y, topk)
        self.distance = torch.full((len(x),), torch.inf, dtype=at_least_single(x.dtype), device=x.device)
        self.distance.masked_fill_(wrong, 0)
        self.adversarial = x.clone()
        self.winner = torch.full_like(y, -1)
        self.goal = torch.zeros_like(self.distance)
        self.fixed_radius = False
        self._streams = Streams(seed, x, y)
        self._attack, self._claims, self._calls = -1, True, 0
        self._before = self.distance
        self._every = _calls_between_looks(x.device)
        self._broken = torch.zeros((), dtype=torch.bool, device=x.device)
        self._retired = wrong
        self._rows: Tensor | None = None
        self.ranking: Tensor | None = None
        self.ranked: Tensor | None = None

    def begin(self, attack: int, claims: bool = True) -> None:
        """Start the next attack: every image that has not reached its goal is searched again.

        Without `claims`, or with an improvement of next to nothing, the previous attack stays the winner.
        """
        self._attack, self._claims, self._before = attack, claims, self.distance
        self._calls = 0
        self._retired = self.distance == 0
        self._compact()

    def aim(self, goal: Tensor) -> None:
        """Search only for an adversarial image within `goal`, one radius per image."""
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
            # Images that were finished in this part are searched again from the next call on.
            self.goal, self._retired, self._calls = goal, retired, 0

    @property
    def anywhere(self) -> Tensor:
        """A radius within which any adversarial image lies."""
        return torch.full_like(self.distance, torch.finfo(self.distance.dtype).max)

    def retire(self, finished: Tensor) -> None:
        """Stop searching these images until the next attack."""
        self._retired = self._retired | finished

    def check_finite(self) -> None:
        """Raise a ModelError if any logits were not finite."""
        if bool(self._broken):
            raise ModelError(
                "The model's logits are not finite for a perturbed image: look for overflow or 0/0 in the model."
            )

    def live(self, ahead: int = 0) -> Tensor:
        """Images that are not finished and have a budget for at least `ahead` more propagations."""
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
        """The margin on logits minus their rounding error, one forward; positive is adversarial."""
        self._next()
        points = self._take(self.clamp(points))
        with torch.no_grad():
            logits = self.classifier(points, self._rows)
        return self._spread(self._record(points, logits))

    def searched(self, ahead: int) -> Tensor:
        """Indices of the images that are searched and have a budget for `ahead` more propagations."""
        self._compact(ahead)
        assert self._rows is not None
        return self._rows

    def sides(self, points: Tensor, rows: Tensor) -> Tensor:
        """Which of several points per image, (count, rows, …), are adversarial: one forward each, not recorded."""
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
        is confident.
        """
        return self.loss_and_gradient(points, lambda z, y, s: soft_margin(z * s, y, sharpness, self.topk), self.scale)

    def loss_and_gradient(self, points: Tensor, loss: Loss, *extra: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The margin, and `loss(logits, y, *extra)` with its gradient; `extra` has one row per image."""
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
        """Uniform random numbers from one stream per image (of those `rows`), shaped like `like` or the images."""
        return self._streams.uniform(self.x if like is None else like, draw, self._attack, rows)

    def normal(self, draw: int) -> Tensor:
        """Normal random numbers from one stream per image."""
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
            # Where the check is free it saves copying all images when none improved.
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
        """Drop images that are finished or have spent the budget: the one place that waits for the device."""
        self.check_finite()
        self._rows = self.live(ahead).nonzero().flatten()
        if len(self._rows) == 0:
            raise Finished

    def _take(self, tensor: Tensor) -> Tensor:
        return tensor if self._rows is None or len(self._rows) == len(tensor) else tensor[self._rows]

    def _spread(self, part: Tensor, onto: Tensor | None = None) -> Tensor:
        """Rows of the searched images, scattered into rows of all images: into `onto`, or into zeros."""
        if self._rows is None or len(part) == len(self.x):
            return part
        onto = part.new_zeros(len(self.x), *part.shape[1:]) if onto is None else onto
        return onto.index_copy(0, self._rows, part)
