"""The search that all attacks share: what is adversarial, the best found so far, the box, which images are active.

An attack holds tensors with one row per image and decides where to look next. The core evaluates only the rows that
are not finished, records every adversarial image, and counts. When no image is left it raises `Finished`.

To drop finished images the host must look at the device, which makes an accelerator wait. So there they are dropped
every few evaluations only (`looking`); until then they stay in the batch, but what is found for them is neither
recorded, counted nor shown to the attack: results are those of the CPU.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gradreg.attacks.guidance import Guidance
from gradreg.attacks.looking import Schedule, Seen
from gradreg.attacks.ties import Ties
from gradreg.classifier import Classifier, Queries
from gradreg.errors import ModelError
from gradreg.looks import rows_of
from gradreg.losses import margin, misclassified, soft_margin
from gradreg.norms import Threat, per_image
from gradreg.precision import at_least_single
from gradreg.randomness import Streams

Loss = Callable[..., Tensor]

# A margin must exceed the rounding of the logits, or the same image in a batch of another size may not be adversarial.
_ROUNDING = 16.0
# Improvements below this fraction earn no credit.
CREDIT = 1e-3
# The smallest budget that allows a query: two forwards check the model, a forward and a backward ask it, one verifies.
LEAST_BUDGET = 5


class Finished(Exception):  # noqa: N818 - it ends an attack and is no error
    """No image is left to search, or the budget is spent."""


def _less_rounding(raw: Tensor, logits: Tensor) -> Tensor:
    return raw - _ROUNDING * torch.finfo(logits.dtype).eps * logits.abs().amax(1)


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
        keys: Tensor | None = None,
        right: int | None = None,
        evaluations: int = 0,
    ) -> None:
        """`keys` are fingerprints of the images, and `right` how many are classified correctly, if that is known.

        `evaluations` is how often the model was asked before.
        """
        self.classifier, self.threat, self.topk = classifier, threat, topk
        self.queries, self.budget, self.seed = queries, budget, seed
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
        self.ties: Ties | None = None
        self.on_grid = False
        """Whether pixels are to stay on a grid of levels."""
        self.goal = torch.zeros_like(self.distance)
        self.fixed_radius = False
        self._streams = Streams(seed, x, y, keys)
        self._attack, self._claims = -1, True
        self._low: torch.dtype | None = None
        self._before = self.distance
        self._schedule = Schedule.of(x.device, evaluations)
        self._broken = torch.zeros((), dtype=torch.bool, device=x.device)
        self._retired = wrong
        self.guidance = Guidance(wrong)
        right = int((~wrong).sum()) if right is None else right
        # The rows in the batch, and which of them are searched; None: all of them.
        self._rows = self._all = rows_of(~wrong, right)
        self._active: Tensor | None = None
        # Whether rows that were dropped may be searched again, and whether none will be before the next goal.
        self._dropped, self._exhausted, self._over = False, right == 0, False
        # What the last look told, unless an evaluation followed it.
        self._seen: Seen | None = None
        self._outer: tuple[Tensor, Tensor] | None = None
        self.ranking: Tensor | None = None
        self.ranked: Tensor | None = None

    def begin(self, attack: int, claims: bool = True, low: torch.dtype | None = None) -> None:
        """Start the next attack: every image that has not reached its goal is searched again.

        Without `claims`, or with an improvement of next to nothing, the previous attack stays the winner. With `low`
        precision every success is asked about again.
        """
        if self._exhausted:
            raise Finished
        if self._dropped or self._low is not None:
            self._rows, self._dropped = self._all, False
        self._attack, self._claims, self._before = attack, claims, self.distance
        self._low = low
        self._retired = self.distance == 0

    def reopen(self, goal: Tensor) -> None:
        """Let the next attack search every image again that is not within `goal`, one radius per image."""
        self.goal, self._exhausted, self._dropped, self._seen = goal, False, True, None

    def aim(self, goal: Tensor) -> None:
        """Search only for an adversarial image within `goal`, one radius per image."""
        self.reopen(goal)
        self.fixed_radius = True

    def leave(self, images: Tensor) -> None:
        """Search these images no more until the next goal."""
        self.goal = self.goal.masked_fill(images, torch.inf)

    def within(self, radius: Tensor, run: Callable[[], object]) -> None:
        """Run a part of an attack in which an image is finished as soon as it is adversarial within its `radius`."""
        goal, retired, rows, outer = self.goal, self._retired, self._rows, self._outer
        self.goal, self._outer = torch.maximum(goal, radius), (goal, retired)
        try:
            run()
        except Finished:
            if self._over:
                raise
        finally:
            # Images that were finished in this part are searched again from the next call on.
            self.goal, self._retired, self._rows, self._outer = goal, retired, rows, outer

    @property
    def anywhere(self) -> Tensor:
        """A radius within which any adversarial image lies."""
        return torch.full_like(self.distance, torch.finfo(self.distance.dtype).max)

    def retire(self, finished: Tensor) -> None:
        """Stop searching these images until the next attack."""
        self._retired, self._dropped = self._retired | finished, True

    def rows_found(self) -> Tensor:
        """Indices of the images that have an adversarial image, other than itself, after the last evaluation."""
        seen = self._look() if self._seen is None else self._seen
        return rows_of(self._to_verify, seen.found)

    @property
    def _to_verify(self) -> Tensor:
        return self.found & (self.distance > 0)

    def live(self, ahead: int = 0) -> Tensor:
        """Images that are not finished and have a budget for at least `ahead` more propagations."""
        return self._searchable(self.goal, self._retired, ahead)

    def _searchable(self, goal: Tensor, retired: Tensor, ahead: int = 0) -> Tensor:
        live = ~(retired | (self.distance <= goal))
        if self.budget is not None and self.queries is not None:
            least = max(ahead, 2) + (self._low is not None)  # a success is asked about once more
            live = live & (self.queries.forwards + self.queries.backwards + least <= self.budget)
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
        with torch.no_grad(), self.classifier.computing(self._low):
            logits = self.classifier(points, self._rows)
        self._uncount(forwards=True)
        return self._shown(self._record(points, logits))

    def searched(self, ahead: int) -> Tensor:
        """Indices of the images that are searched and have a budget for `ahead` more propagations."""
        if self._schedule.free:
            self._compact(ahead)
        else:
            self._next()
            able = self.live(ahead)
            self._active = self._take(able)
            self.retire(~able.any().expand_as(able))  # as `Finished` would
        return self._rows

    def sides(self, points: Tensor, rows: Tensor) -> Tensor:
        """Which of several points per image, (count, rows, …), are adversarial: one forward each, not recorded."""
        count = len(points)
        with torch.no_grad(), self.classifier.computing(self._low):
            logits = self.classifier(points.flatten(0, 1), rows.repeat(count))
        self._schedule.evaluations += 1
        self._uncount(forwards=True, times=count)
        raw = margin(logits, self.y[rows].repeat(count), self.topk)
        hit = (self._reached(raw, logits, count) > 0).view(count, -1)
        return hit if self._active is None else hit & self._active

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

        with self.classifier.computing(self._low):
            losses, gradient = self.classifier.loss_and_gradient(points, self._take(self.y), tapped, self._rows)
        self._uncount(forwards=True, backwards=True)
        reached = self._record(points, seen[0])
        self.guidance.note(gradient, self._rows, self._active)
        gradient = gradient.to(self.x.dtype).nan_to_num(0.0, 0.0, 0.0)
        return self._shown(reached), self._shown(losses), self._shown(gradient)

    def uniform(self, draw: int, like: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """Uniform random numbers from one stream per image (of those `rows`), shaped like `like` or the images."""
        return self._streams.uniform(self.x if like is None else like, draw, self._attack, rows)

    def normal(self, draw: int) -> Tensor:
        """Normal random numbers from one stream per image."""
        return self._streams.normal(self.x, draw, self._attack)

    def _reached(self, raw: Tensor, logits: Tensor, times: int = 1) -> Tensor:
        # Of low precision nothing is recorded before it was asked again, so a bare margin will do.
        reached = (raw if self._low else _less_rounding(raw, logits)).to(self.distance.dtype)
        finite = reached.isfinite()
        self._broken |= ~(finite if self._active is None else finite | ~self._active.repeat(times)).all()
        return reached

    def _record(self, points: Tensor, logits: Tensor) -> Tensor:
        self._schedule.evaluations += 1
        known = self._take(self.distance)
        raw = margin(logits, self._take(self.y), self.topk)
        reached = self._reached(raw, logits)
        distance = self.threat.norm(points - self._take(self.x))
        better = (reached > 0) & (distance < known)
        if self._active is not None:
            better &= self._active
        if self._low:
            reached, raw = self._asked_again(points, reached, better)
            better = better & (reached > 0)
        self._record_ties(raw == 0, points, distance, known)
        if self._schedule.free and not bool(better.any()):
            # Where the check is free it saves copying all images when none improved.
            return reached
        self.distance = self._spread(distance.where(better, known), self.distance)
        if self._claims:
            won = better & (distance < (1 - CREDIT) * self._take(self._before))
            self.winner = self._spread(self._take(self.winner).masked_fill(won, self._attack), self.winner)
        nearest = torch.where(per_image(better, points).bool(), points, self._take(self.adversarial))
        self.adversarial = self._spread(nearest, self.adversarial)
        return reached

    def _asked_again(self, points: Tensor, reached: Tensor, claimed: Tensor) -> tuple[Tensor, Tensor]:
        """What was reached, and the margin, both as the model computes them where low precision claims a success."""
        there, raw = claimed.nonzero().flatten(), torch.full_like(reached, torch.nan)
        if len(there):
            rows = self._rows[there]
            with torch.no_grad():
                logits = self.classifier(points[there], rows)
            exact = margin(logits, self.y[rows], self.topk)
            raw[there], reached[there] = exact.to(raw.dtype), _less_rounding(exact, logits).to(raw.dtype)
        return reached, raw

    def _record_ties(self, tied: Tensor, points: Tensor, distance: Tensor, known: Tensor) -> None:
        tied = tied & (distance > 0) & (distance < (1 - CREDIT) * known)
        if self._active is not None:
            tied &= self._active
        if self._schedule.free and not bool(tied.any()):
            return
        if self.ties is None:
            self.ties = Ties.none(self.x, self.distance)
        self.ties.record(self._rows, points, distance.where(tied, torch.inf), self._attack)

    def affords(self, propagations: int) -> Tensor:
        """Images that have a budget for so many more propagations, the one that is kept for verification included."""
        if self.budget is None or self.queries is None:
            return torch.ones_like(self.distance, dtype=torch.bool)
        return self.queries.forwards + self.queries.backwards + propagations <= self.budget + 1

    def _next(self) -> None:
        """Decide which images the next evaluation is about."""
        if self._schedule.due:
            self._compact()
        else:
            self._active = self._take(self.live())
        self._seen = None

    def _compact(self, ahead: int = 0) -> None:
        """Drop images that are finished or have spent the budget."""
        seen = self._look(ahead)
        self._rows, self._active = rows_of(self.live(ahead), seen.live), None
        self._over = seen.after_this_part == 0
        # A search in low precision keeps more of the budget back than the next one may.
        self._exhausted = seen.after_this_attack == 0 and self._low is None
        if seen.live == 0:
            raise Finished

    def _look(self, ahead: int = 0) -> Seen:
        """The one place that waits for the device."""
        goal, retired = (self.goal, self._retired) if self._outer is None else self._outer
        live, left = self.live(ahead), self._searchable(goal, retired)
        later = self._searchable(goal, self.distance == 0)
        seen = self._seen = Seen.by_one_look(live, left, later, self._broken, self._to_verify)
        self._schedule.looks += 1
        if seen.broken:
            raise ModelError(
                "The model's logits are not finite for a perturbed image: look for overflow or 0/0 in the model."
            )
        return seen

    def _uncount(self, *, forwards: bool = False, backwards: bool = False, times: int = 1) -> None:
        """Take finished images that were still in the batch out of the counts."""
        if self._active is None or self.queries is None:
            return
        finished = self._active.long().sub_(1).mul_(times)
        for counted, counts in ((forwards, self.queries.forwards), (backwards, self.queries.backwards)):
            if counted:
                counts.index_add_(0, self._rows, finished)

    def _take(self, tensor: Tensor) -> Tensor:
        return tensor if len(self._rows) == len(tensor) else tensor[self._rows]

    def _shown(self, part: Tensor) -> Tensor:
        """What an attack sees: rows of all images, 0 for those that are not searched."""
        if self._active is not None:
            part = part.where(self._active.view(-1, *[1] * (part.ndim - 1)), 0)
        return self._spread(part)

    def _spread(self, part: Tensor, onto: Tensor | None = None) -> Tensor:
        """Rows of the searched images, scattered into rows of all images: into `onto`, or into zeros."""
        if len(part) == len(self.x):
            return part
        onto = part.new_zeros(len(self.x), *part.shape[1:]) if onto is None else onto
        return onto.index_copy(0, self._rows, part)
