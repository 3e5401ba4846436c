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
from gradreg.penalty.second import SecondStep


@dataclass(frozen=True)
class Slopes:
    """What a difference found: ∇ℓ(x), the slopes that are penalised, and what was looked at besides."""

    gradient: Tensor
    values: Tensor
    logits: Tensor | None = None
    """At x + hd, where the graph is held."""
    ahead: Ahead | None = None
    omega: Tensor | None = None
    first: Tensor | None = None
    """The slopes of the first step, where images may take a second."""


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
    second_step: float | None = None
    """Images whose slope is less than that part of ‖∇ℓ(x)‖_* take a second step."""
    mean: bool = False
    """Whether the loss is a mean of ℓ(x) and ℓ(x + hd), which does not magnify the rounding of their difference."""

    def limit(self) -> Slopes:
        """For h → 0: the norm of the gradient, which can then be differentiated itself."""
        gradient = self.part.input_gradient(differentiable=True)
        self.calls.check_graphs_can_be_kept("The second derivatives of method='double-backprop'", "use method='fd'")
        return Slopes(gradient, self._norm(gradient))

    def with_two_graphs(self) -> Slopes:
        """The slope with the graphs of both its losses."""
        gradient, losses, _ = self.part.input_gradient_and_answer()
        if losses is not self.part.losses:
            raise ModelError(
                "graphs=2 and output_slope need the graph after one backward, and this compiled model frees it: use "
                "graphs=1 without output_slope, or set torch._functorch.config.donated_buffer = False before the model "
                "is compiled."
            )
        self.calls.check_graphs_can_be_kept("graphs=2 and output_slope", "use graphs=1 without output_slope")
        move = self._move(gradient)
        halfway = self._halfway(move)
        first = self._first(move)
        behind = losses if self.order == 1 else self._at(-move)
        slopes = (first.losses - behind) / (self.h * self.order)
        looked, omega = self._looked(gradient, first, retain=True), self._omega(halfway, first.losses)
        if self.second_step is None:
            return Slopes(gradient, slopes, first.logits, looked, omega)
        ahead, logits = self._second_step(gradient, move, slopes).with_graphs(first)
        return Slopes(gradient, (ahead - behind) / self.h, logits, looked, omega, slopes.detach())

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
            gradient, losses, _ = part.input_gradient_and_answer()
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
        with torch.set_grad_enabled(terms.wanted or self._looks_back):
            first = self._first(move)
        slopes = (first.losses.detach() - behind.detach()) / (self.h * self.order)
        omega = self._omega(halfway, first.losses)
        if self.second_step is None:
            terms.leave(first.losses, rise)
            return Slopes(gradient, slopes, None, self._looked(gradient, first, later=terms.wanted), omega)
        ahead, there = self._second_step(gradient, move, slopes).with_terms(first, terms, rise)
        looked = Ahead(gradient.detach(), first.x, there) if self.alignment else None
        return Slopes(gradient, (ahead - behind.detach()) / self.h, None, looked, omega, slopes)

    @property
    def shrinkage(self) -> float:
        """What the direction of steepest ascent, and so the penalised slope, is multiplied by."""
        return 1 / sqrt(self.part.at[0].numel()) if divides_by_root(self.geometry, self.scale) else 1.0

    def _norm(self, gradient: Tensor) -> Tensor:
        return self.shrinkage * self.geometry.dual_norm(gradient)

    def _move(self, gradient: Tensor) -> Tensor:
        move = per_image(self.h, self.part.at) * self.shrinkage * self.geometry.ascent(gradient)
        slope = self._norm(gradient).detach()
        trial.check(self.calls, self.part, self.geometry, self.scale, move, slope, self.h, mean=self.mean)
        return move

    def _at(self, move: Tensor) -> Tensor:
        x = self.part.at
        return self.calls.repeat(self.part, (x + move).to(x.dtype))

    @property
    def _looks_back(self) -> bool:
        """Whether the gradient at x + hd is wanted."""
        return self.alignment or self.second_step is not None

    def _first(self, move: Tensor) -> Pass:
        """The pass at x + hd, which is a leaf that a backward can leave a gradient at where it is wanted."""
        moved = (self.part.at + move).to(self.part.at.dtype)
        z = leaf(moved) if self._looks_back else moved
        return self.calls.again(self.part, z, notice_draws=self.second_step is not None)

    def _looked(self, gradient: Tensor, first: Pass, *, later: bool = False, retain: bool = False) -> Ahead | None:
        """∇ℓ(x + hd): `later` by the backward of the loss for the first layer's work more; otherwise by one of its own.

        With two graphs other terms of the loss depend on x + hd too, and without gradients there is no such backward.
        """
        if not self.alignment:
            return None
        there = None if later else first.input_gradient(differentiable=False, retain=retain)
        return Ahead(gradient.detach(), first.x, there)

    def _second_step(self, gradient: Tensor, move: Tensor, slopes: Tensor) -> SecondStep:
        assert self.second_step is not None
        misled = slopes.detach() < self.second_step * self._norm(gradient.detach())
        return SecondStep(self.calls, self.part, self.geometry, move, self.h * self.shrinkage, misled)

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
