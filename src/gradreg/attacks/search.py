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

from gradreg.attacks.claims import Claims
from gradreg.attacks.constancy import Constancy
from gradreg.attacks.guidance import Guidance
from gradreg.attacks.looking import Schedule, Seen
from gradreg.attacks.rows import Rows
from gradreg.attacks.ties import Ties
from gradreg.attacks.unfinished import Unfinished
from gradreg.classifier import Classifier
from gradreg.errors import ModelError
from gradreg.looks import rows_of
from gradreg.losses import margin, margin_and_size, misclassified, soft_margin
from gradreg.norms import Threat, per_image
from gradreg.precision import at_least_single, extent
from gradreg.queries import Queries
from gradreg.randomness import Streams

Loss = Callable[..., Tensor]

# A margin must exceed the rounding of the logits, or the same image in a batch of another size may not be adversarial.
_ROUNDING = 16.0
# Sixteen steps of bfloat16 are an eighth of a logit, which is no longer an error but another distance: there two.
_OF_HALF = 2.0
# Improvements below this fraction earn no credit.
CREDIT = 1e-3
# The smallest budget that allows a query: two forwards check the model, a forward and a backward ask it, one verifies.
LEAST_BUDGET = 5


class Finished(Exception):  # noqa: N818 - it ends an attack and is no error
    """No image is left to search, or the budget is spent."""


def refuse_broken(broken: object) -> None:
    """Raise an error if it is true: whether logits were not finite somewhere."""
    if broken:
        raise ModelError(
            "The model's logits are not finite for a perturbed image: look for overflow or 0/0 in the model."
        )


def _margins(logits: Tensor, y: Tensor, topk: int) -> tuple[Tensor, Tensor]:
    """The margin, and the margin less what rounding of its two logits may make of it."""
    raw, size = margin_and_size(logits, y, topk)
    half = logits.dtype != at_least_single(logits.dtype)
    return raw, raw - (_OF_HALF if half else _ROUNDING) * torch.finfo(logits.dtype).eps * size


class Search(Unfinished):
    """A batch of clean images under attack: the model's answers there, and what is adversarial among them."""

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
        wrong = misclassified(logits, y, topk)
        super().__init__(x, wrong, queries, budget)
        self.classifier, self.threat, self.topk, self.seed = classifier, threat, topk, seed
        self.y, self.logits = y, logits
        self.low, self.high = classifier.box
        apart = extent(logits, topk).to(logits.dtype)
        self.scale = 1 / apart.where(apart > 0, 1)
        """Per image, what makes the range of its logits 1, (N, 1)."""
        self.ties: Ties | None = None
        self.on_grid = False
        """Whether pixels are to stay on a grid of levels."""
        self._streams = Streams(seed, x, y, keys)
        self._attack, self._claims = -1, True
        self._before = self.distance
        self._schedule = Schedule.of(x.device, evaluations)
        self.broken = torch.zeros((), dtype=torch.bool, device=x.device)
        """Whether logits were not finite somewhere."""
        self.guidance, self.constancy = Guidance(wrong), Constancy(classifier, x, logits)
        right = int((~wrong).sum()) if right is None else right
        self._rows = Rows(len(x), rows_of(~wrong, right))
        self._all = self._rows.index
        # Whether no image will be searched before the next goal, and none by the attack around a part of it.
        self._exhausted, self._over = right == 0, False
        self._outer: tuple[Tensor, Tensor] | None = None
        # Whether an answer with a gradient will be compared with that without: the first ones of an attack.
        self._compares = True
        self.ranking: Tensor | None = None
        self.ranked: Tensor | None = None

    def begin(self, attack: int, claims: bool = True, low: torch.dtype | None = None) -> None:
        """Start the next attack: every image that has not reached its goal is searched again.

        Without `claims`, or with an improvement of next to nothing, the previous attack stays the winner. With `low`
        precision successes are claims, which `settle` ends.
        """
        if self._exhausted:
            raise Finished
        if self._dropped or self._claimed is not None:
            self._rows, self._dropped = Rows(len(self.x), self._all), False
        self._attack, self._claims, self._before = attack, claims, self.distance
        self._claimed = None if low is None else Claims(low, self._record)
        self._retired, self._compares = self.distance == 0, low is None

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
        self.settle()
        if self._claimed is not None:
            self._claimed.restart()

    def settle(self) -> None:
        """Ask about all claims of low precision as the model computes, and take back those that do not hold."""
        claimed = self._claimed
        if claimed is None or not claimed.asked:
            return
        rows = claimed.open.nonzero().flatten() if self._schedule.free else self._rows.index
        reached = torch.zeros_like(self.distance)
        if len(rows):
            open_, points = claimed.open[rows], self.adversarial[rows]
            with torch.no_grad():
                logits = self.classifier(points, rows)
            self._schedule.evaluations += 1
            if self.queries is not None:
                self.queries.forwards.index_add_(0, rows, open_.long() - 1)
            raw, safe = _margins(logits, self.y[rows], self.topk)
            exact = safe.to(self.distance.dtype)
            self.broken |= ~(exact.isfinite() | ~open_).all()
            reached = reached.index_copy(0, rows, exact)
            self._note_ties((raw == 0) & open_, rows, points, self.distance[rows], claimed.sure.distance[rows])
        self._record, self._seen = claimed.settle(self._record, reached), None
        self._contested = self._contested | claimed.failed

    def astray(self) -> Tensor | None:
        """Images for which low precision found nothing; with radii, nothing within its goal but false claims."""
        mask = self._contested & ~(self.distance <= self.goal) if self.fixed_radius else ~self.found
        self._schedule.looks += 1
        return mask if bool(mask.any()) else None

    @property
    def widest(self) -> Tensor:
        """A length that no perturbation exceeds: the norm of the box's diagonal."""
        return ((self.high - self.low) * self.threat.norm(torch.ones_like(self.x[:1]))).to(self.distance.dtype)

    def rows_found(self) -> Tensor:
        """Indices of the images that have an adversarial image, other than itself, after the last evaluation."""
        seen = self._look() if self._seen is None else self._seen
        return rows_of(self._to_verify, seen.found)

    def clamp(self, points: Tensor) -> Tensor:
        """The nearest point of the box."""
        return points.clamp(self.low, self.high)

    def margin(self, points: Tensor) -> Tensor:
        """The margin on logits minus their rounding error, one forward; positive is adversarial."""
        self._next()
        points = self._rows.take(self.clamp(points))
        with torch.no_grad(), self.classifier.computing(self._low):
            logits = self.classifier(points, self._rows.index)
        self._uncount(forwards=True)
        return self._rows.shown(self._reached(points, logits))

    def searched(self, ahead: int) -> Tensor:
        """Indices of the images that are searched; those without a budget for `ahead` more propagations are retired."""
        self._settle_in_time()
        able = self.live(ahead)
        self.retire(~able)
        if self._schedule.free:
            self._compact()
        else:
            self._next()
            self._rows.active = self._rows.take(able)
        return self._rows.index

    def sides(self, points: Tensor, rows: Tensor) -> Tensor:
        """Which of several points per image, (count, rows, …), are adversarial: one forward each, not recorded."""
        count = len(points)
        with torch.no_grad(), self.classifier.computing(self._low):
            logits = self.classifier(points.flatten(0, 1), rows.repeat(count))
        self._schedule.evaluations += 1
        self._uncount(forwards=True, times=count)
        _, safe = self._safe_margins(logits, self.y[rows].repeat(count), count)
        return self._rows.only(safe > 0, count).view(count, -1)

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
        points = self._rows.take(self.clamp(points))
        parts = [self._rows.take(tensor) for tensor in extra]
        seen: list[Tensor] = []

        def tapped(logits: Tensor, y: Tensor, /) -> Tensor:
            seen.append(logits.detach())
            return loss(logits, y, *parts)

        index, y = self._rows.index, self._rows.take(self.y)
        with self.classifier.computing(self._low):
            losses, gradient = self.classifier.loss_and_gradient(points, y, tapped, index)
        self._uncount(forwards=True, backwards=True)
        self.constancy.asked = True
        if self._compares:
            self.constancy.note(points, seen[0], index)
            self._compares = False
        reached = self._reached(points, seen[0])
        self.guidance.note(gradient, index, self._rows.active)
        gradient = gradient.to(self.x.dtype).nan_to_num(0.0, 0.0, 0.0)
        return self._rows.shown(reached), self._rows.shown(losses), self._rows.shown(gradient)

    def uniform(self, draw: int, like: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """Uniform random numbers from one stream per image (of those `rows`), shaped like `like` or the images."""
        return self._streams.uniform(self.x if like is None else like, draw, self._attack, rows)

    def normal(self, draw: int) -> Tensor:
        """Normal random numbers from one stream per image."""
        return self._streams.normal(self.x, draw, self._attack)

    @property
    def _low(self) -> torch.dtype | None:
        return None if self._claimed is None else self._claimed.low

    def _safe_margins(self, logits: Tensor, y: Tensor, times: int = 1) -> tuple[Tensor, Tensor]:
        """The margin of the evaluated images, repeated so often, and the margin less what may be wrong with it."""
        raw, safe = _margins(logits, y, self.topk)
        safe = safe.to(self.distance.dtype)
        if self._claimed is not None:
            safe = raw.to(self.distance.dtype) - self._rows.take(self._claimed.doubt).repeat(times)
        self.broken |= self._rows.only(~safe.isfinite(), times).any()
        return raw, safe

    def _reached(self, points: Tensor, logits: Tensor) -> Tensor:
        """The safe margin at these points, after what is adversarial and nearer was recorded."""
        self._schedule.evaluations += 1
        rows = self._rows
        raw, reached = self._safe_margins(logits, rows.take(self.y))
        known, distance = rows.take(self.distance), self.threat.norm(points - rows.take(self.x))
        # At distance 0 the answer is known, and this one is another.
        better = rows.only((reached > 0) & (distance < known) & (distance > 0))
        if self._claimed is None:
            self._note_ties(rows.only(raw == 0), rows.index, points, distance, known)
        else:
            self._claimed.note(rows.spread(better), rows.spread(raw.to(known.dtype)))
        if self._schedule.free and not bool(better.any()):
            # Where the check is free it saves copying all images when none improved.
            return reached
        self.distance = rows.spread(distance.where(better, known), self.distance)
        if self._claims:
            won = better & (distance < (1 - CREDIT) * rows.take(self._before))
            self.winner = rows.spread(rows.take(self.winner).masked_fill(won, self._attack), self.winner)
        nearest = torch.where(per_image(better, points).bool(), points, rows.take(self.adversarial))
        self.adversarial = rows.spread(nearest, self.adversarial)
        return reached

    def _note_ties(self, tied: Tensor, rows: Tensor, points: Tensor, distance: Tensor, known: Tensor) -> None:
        tied = tied & (distance > 0) & (distance < (1 - CREDIT) * known)
        if self._schedule.free and not bool(tied.any()):
            return
        if self.ties is None:
            self.ties = Ties.none(self.x, self.distance)
        self.ties.record(rows, points, distance.where(tied, torch.inf), self._attack)

    def _next(self) -> None:
        """Decide which images the next evaluation is about."""
        self._settle_in_time()
        if self._schedule.due:
            self._compact()
        else:
            self._rows.active = self._rows.take(self.live())
        self._seen = None

    def _settle_in_time(self) -> None:
        if self._claimed is not None and self._claimed.due:
            self.settle()

    def _compact(self) -> None:
        """Drop images that are finished or have spent the budget."""
        seen, live = self._look(), self.live()
        self._rows = Rows(len(self.x), rows_of(self._kept(live), seen.kept))
        if self._claimed is not None and not self._schedule.free:
            self._rows.active = self._rows.take(live)
        self._over = seen.after_this_part == 0
        # A search in low precision keeps more of the budget back than the next one may.
        self._exhausted = seen.after_this_attack == 0 and self._claimed is None
        if seen.live == 0:
            raise Finished

    def _look(self) -> Seen:
        """The one place that waits for the device."""
        goal, retired = (self.goal, self._retired) if self._outer is None else self._outer
        live, left = self.live(), self._searchable(goal, retired)
        later = self._searchable(goal, self.distance == 0)
        seen = Seen.by_one_look(live, self._kept(live), left, later, self.broken, self._to_verify)
        self._seen = seen
        self._schedule.looks += 1
        refuse_broken(seen.broken)
        return seen

    def _uncount(self, *, forwards: bool = False, backwards: bool = False, times: int = 1) -> None:
        """Take finished images that were still in the batch out of the counts."""
        active = self._rows.active
        if active is None or self.queries is None:
            return
        finished = active.long().sub_(1).mul_(times)
        for counted, counts in ((forwards, self.queries.forwards), (backwards, self.queries.backwards)):
            if counted:
                counts.index_add_(0, self._rows.index, finished)
