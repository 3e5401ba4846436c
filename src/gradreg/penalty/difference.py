"""The finite difference along the steepest ascent, eq. (10) of the paper: how it is taken and differentiated."""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from gradreg.calling.answers import leaf
from gradreg.errors import ModelError
from gradreg.norms import Threat, per_image
from gradreg.penalty import trial
from gradreg.penalty.ahead import Ahead
from gradreg.penalty.graphs import Terms
from gradreg.penalty.options import Scale, divides_by_root
from gradreg.penalty.passes import Calls, Pass


@dataclass(frozen=True)
class Slopes:
    """What a difference found: ∇ℓ(x), the slopes that are penalised, and what was looked at besides."""

    gradient: Tensor
    values: Tensor
    logits: Tensor | None = None
    """At x + hd, where the graph is held."""
    ahead: Ahead | None = None
    omega: Tensor | None = None


@dataclass(frozen=True)
class Difference:
    """The slope of each image's loss along its steepest ascent, and the gradient ∇ℓ(x) it stands for."""

    calls: Calls
    part: Pass
    geometry: Threat
    scale: Scale
    h: float | Tensor
    order: int
    alignment: bool = False
    """Whether the gradient at x + hd is wanted too."""
    omega: bool = False
    """Whether the loss halfway is."""

    def limit(self) -> Slopes:
        """For h → 0: the norm of the gradient, which can then be differentiated itself."""
        gradient = self.part.input_gradient(differentiable=True)
        return Slopes(gradient, self._norm(gradient))

    def with_two_graphs(self) -> Slopes:
        """The slope with the graphs of both its losses."""
        gradient, losses = self.part.input_gradient_and_losses()
        if losses is not self.part.losses:
            raise ModelError(
                "graphs=2 and output_slope need the graph after one backward, and this compiled model frees it: use "
                "graphs=1 without output_slope, or set torch._functorch.config.donated_buffer = False before the model "
                "is compiled."
            )
        self.calls.check_graphs_can_be_kept()
        move = self._move(gradient)
        halfway = self._halfway(move)
        z = self._moved(move)
        ahead, logits = self.calls.answer_again(self.part, z)
        behind = losses if self.order == 1 else self._at(-move)
        return Slopes(
            gradient,
            (ahead - behind) / (self.h * self.order),
            logits,
            self._looked(gradient, z, ahead, later=False),
            self._omega(halfway, ahead),
        )

    def with_one_graph(self, terms: Terms, share: float, strength: float, squared: bool) -> Slopes:
        """The slope without a graph. `terms` gets the gradient of the penalty, and of `share` times the part's losses.

        Of the penalty's gradient (w/m)·Σ∇s, or (λ/m)·Σ‖∇ℓ‖∇s if squared, all but the sum over ℓ(x + hd) is settled
        before that last pass. One backward does for ∇ℓ(x) and the weights if the coefficient of ℓ(x) is known by then.
        """
        part, losses = self.part, self.part.losses
        rise = strength / self.h / (self.order * len(part.x))
        uniform = not squared and not (isinstance(rise, Tensor) and rise.ndim)
        if self.order == 2 or uniform:
            gradient = terms.settle_with_input(part, share if self.order == 2 else share - rise)
        else:
            gradient, losses = part.input_gradient_and_losses()
        if squared:
            rise = rise * self._norm(gradient)
        if self.order == 1 and not uniform:
            terms.settle(losses, share - rise, but=part.x)
        move = self._move(gradient)
        halfway = self._halfway(move)
        with torch.set_grad_enabled(terms.wanted):
            behind = part.losses
            if self.order == 2:
                behind = self._at(-move)
                terms.settle(behind, -rise)
        z = self._moved(move)
        with torch.set_grad_enabled(terms.wanted or self.alignment):
            ahead = self.calls.repeat(part, z)
        terms.leave(ahead, rise)
        slopes = (ahead.detach() - behind.detach()) / (self.h * self.order)
        looked = self._looked(gradient, z, ahead, later=terms.wanted)
        return Slopes(gradient, slopes, None, looked, self._omega(halfway, ahead))

    @property
    def shrinkage(self) -> float:
        """What the direction of steepest ascent, and so the penalised slope, is multiplied by."""
        return 1 / sqrt(self.part.at[0].numel()) if divides_by_root(self.geometry, self.scale) else 1.0

    def _norm(self, gradient: Tensor) -> Tensor:
        return self.shrinkage * self.geometry.dual_norm(gradient)

    def _move(self, gradient: Tensor) -> Tensor:
        move = per_image(self.h, self.part.at) * self.shrinkage * self.geometry.ascent(gradient)
        trial.check(self.calls, self.part, self.geometry, move, self._norm(gradient).detach(), self.h)
        return move

    def _at(self, move: Tensor) -> Tensor:
        x = self.part.at
        return self.calls.repeat(self.part, (x + move).to(x.dtype))

    def _moved(self, move: Tensor) -> Tensor:
        """x + hd, and where the gradient there is wanted, as a leaf that a backward can leave it at."""
        moved = (self.part.at + move).to(self.part.at.dtype)
        return leaf(moved) if self.alignment else moved

    def _looked(self, gradient: Tensor, z: Tensor, ahead: Tensor, *, later: bool) -> Ahead | None:
        """∇ℓ(x + hd): `later` by the backward of the loss for the first layer's work more; otherwise by one of its own.

        With two graphs other terms of the loss depend on x + hd too, and without gradients there is no such backward.
        """
        if not self.alignment:
            return None
        found = None
        if not later:
            with self.calls.backward(self.part.begun):
                torch.autograd.backward(ahead.sum(), inputs=[z], retain_graph=True)
            found, z.grad = z.grad, None
        return Ahead(gradient.detach(), z, found)

    def _halfway(self, move: Tensor) -> Tensor | None:
        """The loss in the middle, by a pass of its own without a graph (as compiled: with gradients, where it was)."""
        if not self.omega:
            return None
        with torch.set_grad_enabled(self.calls.compiled):
            return self._at(move / 2).detach()

    def _omega(self, halfway: Tensor | None, ahead: Tensor) -> Tensor | None:
        """4|e|/h with the midpoint's error e = ℓ(x + hd/2) − (ℓ(x) + ℓ(x + hd))/2, a lower limit of ω(h/2).

        e = ½∫₀^{h/2} (φ'(t) − φ'(t + h/2)) dt for φ(t) = ℓ(x + td), so |e| ≤ h/4·ω(h/2); equal for a quadratic.
        """
        if halfway is None:
            return None
        error = halfway - (self.part.losses.detach() + ahead.detach()) / 2
        return 4 * error.abs() / (self.h * self.shrinkage)
