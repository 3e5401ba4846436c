"""The input gradient penalty by finite differences: Prop. 3.2 and Algorithm 1 of the paper.

One forward finds ℓ(x), one backward to the input the direction d of steepest ascent, one more forward ℓ(x + hd); then
(ℓ(x + hd) − ℓ(x))/h is the dual norm of the gradient, and ordinary backwards train on it. No second derivative
is taken, so it runs where double backprop does not: compiled models, fused attention, distributed training.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import torch
from torch import Tensor

from gradreg.calling.answers import MODEL, Output
from gradreg.calling.targets import Target
from gradreg.checks.objects import check_function
from gradreg.display.numbers import significant
from gradreg.display.summary import Shown, Summary, images, spread
from gradreg.errors import ModelError
from gradreg.losses import cross_entropy
from gradreg.norms import Threat, ThreatName, checked, per_image
from gradreg.norms import threat as threat_named
from gradreg.penalty import trial
from gradreg.penalty.base_pass import moved_by, noisy, pass_at_base
from gradreg.penalty.devices import same_device
from gradreg.penalty.graphs import Terms, leaves
from gradreg.penalty.options import (
    Method,
    Scale,
    Statistics,
    check,
    check_functions,
    check_noise,
    check_output_slope,
    default_step,
    divides_by_root,
    form,
)
from gradreg.penalty.passes import AutocastMode, BatchNormMode, Calls, Criterion, Model, Pass, check_batch_norm_mode


@dataclass(frozen=True, repr=False)
class RegularizedLoss(Shown):
    """What a step minimises, `loss = clean + penalty`, and values to log; all but `loss` are detached."""

    loss: Tensor
    clean: Tensor
    penalty: Tensor
    logits: Tensor
    grad_norm: Tensor
    """‖∇ℓ(x)‖_* per image, by autograd; NaN where this step did not compute it (lazy, fraction)."""
    slope: Tensor
    """The same norm by the difference, in the same units: they differ by at most ω(h)/h, the loss's curvature.

    `scale="paper"` penalises it over √N for "linf"."""
    output_change: Tensor | None = None
    """Mean squared change of the logits from x to x + hd per image, with `output_slope`; None without."""
    _input: Tensor | None = None

    def summary(self) -> Summary:
        """The parts of the loss, and the gradient's norm both ways."""
        loss, clean, penalty = (significant(float(part.detach())) for part in (self.loss, self.clean, self.penalty))
        return Summary(
            f"RegularizedLoss: {loss} = clean {clean} + penalty {penalty}, {images(len(self.grad_norm))}",
            [("gradient norm", spread(self.grad_norm)), ("by difference", spread(self.slope))],
        )

    def backward(self) -> None:
        """As `loss.backward()`, without a gradient for the images where a graph leads to them (graphs=2)."""
        torch.autograd.backward(self.loss, inputs=leaves(self.loss, self._input))


def regularized_loss(
    model: Model,
    x: Tensor,
    y: Target,
    *,
    threat: ThreatName | Threat = "l2",
    lam: float | None = None,
    eps: float | None = None,
    weight: float = 1.0,
    squared: bool | None = None,
    scale: Scale | None = None,
    h: float | Tensor | None = None,
    order: Literal[1, 2] = 1,
    method: Method = "fd",
    criterion: Criterion = cross_entropy,
    bn: BatchNormMode = "train",
    autocast: AutocastMode = "off",
    lazy: int = 1,
    fraction: float = 1.0,
    step: int | None = None,
    graphs: Literal[1, 2] = 1,
    noise: float | Tensor = 0.0,
    statistics: Statistics = "noisy",
    output_slope: float = 0.0,
    output: Output | None = None,
) -> RegularizedLoss:
    """Mean loss of a batch plus its input gradient penalty; replaces `criterion(model(x), y)`.

    How strong, one of
      `lam`: (λ/2)·‖∇ℓ‖²_*, eq. (1). Algorithm 1 has no ½: for its λ pass twice that. With `squared=False`, λ·‖∇ℓ‖_*.
      `eps`: `weight`·ε·‖∇ℓ‖_*, in threat units: what an attacker of radius ε gains, to first order.

    `threat` is the norm of the *attack*; the gradient is measured in its dual. For "linf" the paper's experiments walk
    along sign(∇ℓ)/√N and so penalise ‖∇ℓ‖₁²/N: `scale="paper"`, the default with `lam`; h is then an l2 length.
    `scale="dual"`, the default with `eps`, walks along sign(∇ℓ) and penalises ‖∇ℓ‖₁ itself; h is then a pixel step.
    For every other norm the two are the same.

    `h` is the length of the difference, one for all or one per image; the default is the paper's 0.01 with `lam` and
    ε/2 with `eps`. `order=2` takes the central difference: error O(h²) for 9F per step (F: one forward) instead of 7F.
    `method="double-backprop"` is the exact norm, the reference. Unsquared penalties with one h for all cost 6F.

    The weight gradients of each pass but the last are computed in this call and handed out by `loss.backward()`, so
    one graph is held at a time, not two. To know the clean pass's share before there is a slope s, the gradient of a
    squared penalty is taken as ‖∇ℓ‖∇s instead of s∇s (the same but for O(h)), and of an unsquared one as ∇s instead of
    ∇|s| (the same unless h looks beyond a maximum). `graphs=2` differentiates Algorithm 1 literally.

    `bn="train"` leaves batch normalisation in train mode, as the authors do: batch statistics then let the images of a
    batch move each other's losses. Running statistics are updated once, by the clean batch. `bn="frozen"` uses the
    running statistics and updates nothing: every image on its own.

    Under autocast the passes run in full precision all the same, since bf16 keeps nothing of a difference over
    h = 0.01; `autocast="keep"` leaves them in low precision and rejects an h too small for it.

    `lazy=k` computes the penalty at every k-th `step`, with k times the weight; `fraction=ρ` on a random part of the
    batch, drawn by `step`. Both keep its mean over steps. With k = 4 or ρ = ¼ a 7F step costs 4F on average, against 3F
    without a penalty (ρ = ¼ with batch statistics: 4.75F, since the part needs a clean pass of its own).

    `noise` moves the base point: everything above is taken at u = x + n instead of x, with n uniform in the threat's
    ball of that radius, or given as a tensor. `eps=ε, h=ε, noise=ε` is then ℓ(u + εd) alone: adversarial training by
    one step from a noisy start, not projected back (N-FGSM), for 5F; with another h or weight 6F. `statistics="clean"`
    moves running statistics, and whatever else a pass moves, by a pass of the images without noise, for one F more.

    `output_slope=μ` adds μ·mean((f(u + hd) − f(u))²) over images and classes, the finite-difference norm of the
    Jacobian along d: all outputs are kept from moving, not only the loss. It needs both graphs and costs 7F.

    `y` are labels, or soft labels of the shape of the logits; with a `criterion` of your own whatever that takes:
    masks, multi-label targets, mappings, tuples. Tensors in them have one row per image, and the criterion returns one
    loss per image.

    `output` is a function from what the model returns to logits; a tensor, an object with `.logits` and a mapping with
    "logits" need none.
    """
    strength, squared, scale = form(lam, eps, weight, squared, scale)
    h = default_step(eps) if h is None else h
    geometry = threat_named(threat)
    h, lazy, fraction, step = check(x, y, criterion, h, order, method, autocast, lazy, fraction, step, graphs)
    noise, output_slope = check_noise(noise, x, statistics), check_output_slope(output_slope, method, order)
    check_function("model", model, MODEL)
    check_functions(criterion, output)
    checked(geometry, x)
    check_batch_norm_mode(model, bn)
    if lazy > 1 and step is not None:
        strength, output_slope = (lazy * part if step % lazy == 0 else 0.0 for part in (strength, output_slope))

    wants_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        calls = Calls(model, criterion, bn, autocast, output)
        pixels = calls.images(x)
        base = pixels if isinstance(noise, float) and noise == 0 else noisy(pixels, noise, geometry)
        begun = calls.state.now(x.device)
        one_graph = graphs == 1 and method == "fd" and not output_slope
        terms = Terms(calls, begun, wanted=wants_graph) if one_graph else None
        penalised = fraction if strength or output_slope else 0.0
        by_clean = statistics == "clean" and base is not pixels
        with same_device(model, x, y), moved_by(calls, begun, pixels, y) if by_clean else nullcontext():
            clean = pass_at_base(calls, begun, base, y, penalised, step, terms)
        grad_norm, slope = clean.loss.detach().new_full((2, len(x)), torch.nan)
        penalty, loss, change = clean.loss.new_zeros(()), clean.loss, None
        if clean.part is not None:
            length = h.to(clean.loss.device, clean.loss.dtype) if isinstance(h, Tensor) else h
            if isinstance(length, Tensor) and length.ndim:
                length = length[clean.index]
            difference = _Difference(calls, clean.part, geometry, scale, length, order)
            if method == "double-backprop":
                gradient, slopes = difference.limit()
            elif terms is None:
                gradient, slopes, logits = difference.with_two_graphs()
                if output_slope:
                    change = (logits - clean.part.logits).flatten(1).square().mean(1)
            else:
                gradient, slopes = difference.with_one_graph(terms, clean.share, strength, squared)
            penalty = strength * (slopes.square().mean() / 2 if squared else slopes.abs().mean())
            if change is not None:
                penalty = penalty + output_slope * change.mean()
            loss = clean.loss + penalty if terms is None else terms.loss(clean.loss.detach() + penalty)
            grad_norm[clean.index] = geometry.dual_norm(gradient.detach()).to(grad_norm.dtype)
            slope[clean.index] = slopes.detach() / difference.shrinkage
    return RegularizedLoss(
        loss=loss if wants_graph else loss.detach(),
        clean=clean.loss.detach(),
        penalty=penalty.detach(),
        logits=clean.logits.detach(),
        grad_norm=grad_norm,
        slope=slope,
        output_change=None if change is None else change.detach(),
        _input=clean.part.x if clean.part else None,
    )


@dataclass(frozen=True)
class _Difference:
    """The slope of each image's loss along its steepest ascent, eq. (10), and the gradient ∇ℓ(x) it stands for."""

    calls: Calls
    part: Pass
    geometry: Threat
    scale: Scale
    h: float | Tensor
    order: int

    def limit(self) -> tuple[Tensor, Tensor]:
        """For h → 0: the norm of the gradient, which can then be differentiated itself."""
        gradient = self.part.input_gradient(differentiable=True)
        return gradient, self._norm(gradient)

    def with_two_graphs(self) -> tuple[Tensor, Tensor, Tensor]:
        """The slope with the graphs of both its losses, and the logits ahead."""
        gradient, losses = self.part.input_gradient_and_losses()
        if losses is not self.part.losses:
            raise ModelError(
                "graphs=2 and output_slope need the graph after one backward, and this compiled model frees it: use "
                "graphs=1 without output_slope, or set torch._functorch.config.donated_buffer = False before the model "
                "is compiled."
            )
        self.calls.check_graphs_can_be_kept()
        move = self._move(gradient)
        ahead, logits = self._answer_at(move)
        behind = losses if self.order == 1 else self._at(-move)
        return gradient, (ahead - behind) / (self.h * self.order), logits

    def with_one_graph(self, terms: Terms, share: float, strength: float, squared: bool) -> tuple[Tensor, Tensor]:
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
        with torch.set_grad_enabled(terms.wanted):
            behind = part.losses
            if self.order == 2:
                behind = self._at(-move)
                terms.settle(behind, -rise)
            ahead = self._at(move)
        terms.leave(ahead, rise)
        return gradient, (ahead.detach() - behind.detach()) / (self.h * self.order)

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
        return self._answer_at(move)[0]

    def _answer_at(self, move: Tensor) -> tuple[Tensor, Tensor]:
        x = self.part.at
        return self.calls.answer_again(self.part, (x + move).to(x.dtype))
