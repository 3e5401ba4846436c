"""Which images of a batch are not finished: what is known of each, how near it is to be, what is left to spend."""

import torch
from torch import Tensor

from gradreg.attacks.claims import Claims, Record
from gradreg.attacks.looking import Seen
from gradreg.precision import at_least_single
from gradreg.queries import Queries


class Unfinished:
    """Images, and the nearest adversarial image known for each: `distance`, `adversarial`, `winner`.

    An image is finished when `distance` has reached its `goal` (0: never), when the attack has retired it or when its
    budget is spent. What low precision claims finishes nothing before it was asked about.
    """

    def __init__(self, x: Tensor, wrong: Tensor, queries: Queries | None, budget: int | None) -> None:
        self.x, self.queries, self.budget = x, queries, budget
        self.distance = torch.full((len(x),), torch.inf, dtype=at_least_single(x.dtype), device=x.device)
        self.distance.masked_fill_(wrong, 0)
        self.adversarial = x.clone()
        self.winner = torch.full_like(wrong, -1, dtype=torch.int64)
        self.goal = torch.zeros_like(self.distance)
        self.fixed_radius = False
        self._retired = wrong
        self._claimed: Claims | None = None
        self._contested = torch.zeros_like(wrong)
        # Whether rows that were dropped may be searched again.
        self._dropped, self._exhausted = False, False
        # What the last look told, unless an evaluation followed it.
        self._seen: Seen | None = None

    @property
    def _record(self) -> Record:
        return Record(self.distance, self.adversarial, self.winner)

    @_record.setter
    def _record(self, record: Record) -> None:
        self.distance, self.adversarial, self.winner = record.distance, record.adversarial, record.winner

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

    @property
    def anywhere(self) -> Tensor:
        """A radius within which any adversarial image lies."""
        return torch.full_like(self.distance, torch.finfo(self.distance.dtype).max)

    def retire(self, finished: Tensor) -> None:
        """Stop searching these images until the next attack."""
        self._retired, self._dropped = self._retired | finished, True

    def live(self, ahead: int = 0) -> Tensor:
        """Images that are not finished and have a budget for at least `ahead` more propagations."""
        return self._searchable(self.goal, self._retired, ahead)

    def _searchable(self, goal: Tensor, retired: Tensor, ahead: int = 0) -> Tensor:
        sure = self.distance if self._claimed is None else self._claimed.sure.distance
        live = ~(retired | (sure <= goal))
        if self.budget is not None and self.queries is not None:
            least = max(ahead, 2) + (self._claimed is not None)  # a claim is asked about once more
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

    @property
    def _to_verify(self) -> Tensor:
        return self.found & (self.distance > 0)

    def _kept(self, live: Tensor) -> Tensor:
        """The images that stay in the batch: those that are searched; without looks, those with an open claim too."""
        if self._claimed is None or live.device.type == "cpu":
            return live
        return live | self._claimed.open

    def affords(self, propagations: int) -> Tensor:
        """Images that have a budget for so many more propagations, the one that is kept for verification included."""
        if self.budget is None or self.queries is None:
            return torch.ones_like(self.distance, dtype=torch.bool)
        return self.queries.forwards + self.queries.backwards + propagations <= self.budget + 1
