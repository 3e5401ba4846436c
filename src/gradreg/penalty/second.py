"""A second step of ascent for images whose first one misleads: their loss rose less than their gradient promised."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.calling.targets import at
from gradreg.norms import Threat, per_image
from gradreg.penalty.graphs import Terms
from gradreg.penalty.passes import Calls, Pass


@dataclass(frozen=True)
class SecondStep:
    """From z = x + hd by h along the gradient there, and back into the ball of radius h around x.

    An image's second step depends on that image alone. Where images interact, by batch statistics, say, or masks are
    drawn for a whole batch, all images pass again in one batch, of which the others stay at z.
    """

    calls: Calls
    part: Pass
    geometry: Threat
    move: Tensor
    radius: float | Tensor
    misled: Tensor

    def with_graphs(self, first: Pass) -> tuple[Tensor, Tensor]:
        """Losses and logits ahead with their graphs; the first pass keeps its own for the images that stay."""
        if self._all_pass(first):
            return self.calls.answer_again(self.part, self._mixed(first.input_gradient(differentiable=False)))
        rows = self.misled.nonzero()[:, 0]
        if len(rows) == 0:
            return first.losses, first.logits
        losses, logits = self._pass(first.input_gradient(differentiable=False), rows)
        return first.losses.index_copy(0, rows, losses), first.logits.index_copy(0, rows, logits)

    def with_terms(self, first: Pass, terms: Terms, rise: float | Tensor) -> tuple[Tensor, Tensor | None]:
        """Losses ahead without a graph, whose gradient `terms` gets; and the gradient at z, if it is known already."""
        if self._all_pass(first):
            there = first.input_gradient(differentiable=False, retain=False)
            with torch.set_grad_enabled(terms.wanted):
                losses = self.calls.repeat(self.part, self._mixed(there))
            terms.leave(losses, rise)
            return losses.detach(), there
        rows = self.misled.nonzero()[:, 0]
        if len(rows) == 0:
            terms.leave(first.losses, rise)
            known = None if terms.wanted else first.input_gradient(differentiable=False, retain=False)
            return first.losses.detach(), known
        if len(rows) == len(self.misled) or not terms.wanted:
            there = first.input_gradient(differentiable=False, retain=False)
        else:
            # One backward for the weights' gradient of the images that stay, and for where the others go: these count
            # by less than rounding shows.
            parts = torch.where(self.misled, torch.finfo(first.losses.dtype).eps, 1.0).to(first.losses)
            there = terms.settle_with_input(first, parts * rise)
        with torch.set_grad_enabled(terms.wanted):
            losses, _ = self._pass(there, rows)
        terms.leave(losses, rise[rows] if isinstance(rise, Tensor) and rise.ndim else rise)
        return first.losses.detach().index_copy(0, rows, losses.detach()), there

    def _all_pass(self, first: Pass) -> bool:
        if not first.draws:
            self.calls.try_interaction(self.part.begun, self.part.at, self.part.y)
        return self.calls.images_interact or first.draws

    def _pass(self, there: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The images that take the step, on their own."""
        radius = self.radius[rows] if isinstance(self.radius, Tensor) and self.radius.ndim else self.radius
        x = self.part.at[rows]
        moved = (x + self._step(self.move[rows], there[rows], radius)).to(x.dtype)
        with self.part.begun.replayed():
            return self.calls.evaluate(moved, at(self.part.y, rows))

    def _mixed(self, there: Tensor) -> Tensor:
        x = self.part.at
        move = self._step(self.move, there, self.radius)
        return (x + move.where(self.misled.view(-1, *[1] * (x.ndim - 1)), self.move)).to(x.dtype)

    def _step(self, move: Tensor, there: Tensor, radius: float | Tensor) -> Tensor:
        return self.geometry.retract(move + per_image(radius, move) * self.geometry.climb(there), radius)
