"""The input gradient penalty by finite differences: Prop. 3.2 and Algorithm 1 of the paper.

One forward finds ℓ(x), one backward to the input the direction d of steepest ascent, one more forward ℓ(x + hd); then
(ℓ(x + hd) − ℓ(x))/h is the dual norm of the gradient, and ordinary backwards train on it. No second derivative
is taken, so it runs where double backprop does not: compiled models, fused attention, distributed training.
"""

from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor

from gradreg.calling.answers import MODEL, Output
from gradreg.calling.targets import Target, tracked
from gradreg.checks.objects import check_function
from gradreg.defaults import on_the_host
from gradreg.losses import cross_entropy
from gradreg.norms import Threat, ThreatName, checked
from gradreg.norms import threat as threat_named
from gradreg.penalty.base_pass import moved_by, noisy, pass_at_base
from gradreg.penalty.compiling import never_compiled
from gradreg.penalty.devices import same_device
from gradreg.penalty.difference import Difference
from gradreg.penalty.graphs import Terms, once_differentiable
from gradreg.penalty.normalisation import check_batch_norm_mode
from gradreg.penalty.options import (
    Method,
    Scale,
    Statistics,
    check,
    check_functions,
    check_graphs,
    check_length,
    check_looks,
    check_noise,
    check_output_slope,
    check_second_step,
    default_step,
    form,
)
from gradreg.penalty.passes import AutocastMode, BatchNormMode, Calls, Criterion, Model
from gradreg.penalty.result import RegularizedLoss


@never_compiled
@on_the_host
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
    second_step: float | None = None,
    alignment: bool = False,
    omega: int = 0,
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
    ∇|s| (the same unless h looks beyond a maximum). `graphs=2` differentiates Algorithm 1 literally. Where weights were
    computed from others before the call, both graphs are held in any case. The loss has first derivatives only.

    `bn="train"` leaves batch normalisation in train mode, as the authors do: batch statistics then let the images of a
    batch move each other's losses. Running statistics are updated once, by the clean batch. `bn="frozen"` uses the
    running statistics and updates nothing: every image on its own.

    Under autocast the passes run in full precision all the same, since bf16 keeps nothing of a difference over
    h = 0.01; `autocast="keep"` leaves them in low precision and rejects an h too small for it. An unsquared penalty no
    stronger than h (`eps` ≤ `h`) is a mean of ℓ(x) and ℓ(x + hd): nothing is magnified, and bf16 does what it does in
    plain training.

    `lazy=k` computes the penalty at every k-th `step`, with k times the weight; `fraction=ρ` on a random part of the
    batch, drawn by `step`. Both keep its mean over steps. With k = 4 or ρ = ¼ a 7F step costs 4F on average, against 3F
    without a penalty (ρ = ¼ with batch statistics: 4.75F, since the part needs a clean pass of its own).

    `noise` moves the base point: everything above is taken at u = x + n instead of x, with n uniform in the threat's
    ball of that radius, or given as a tensor. `eps=ε, h=ε, noise=ε` is then ℓ(u + εd) alone: adversarial training by
    one step from a noisy start, not projected back (N-FGSM), for 5F; with another h or weight 6F. `statistics="clean"`
    moves running statistics, and whatever else a pass moves, by a pass of the images without noise, for one F more.

    `output_slope=μ` adds μ·mean((f(u + hd) − f(u))²) over images and classes, the finite-difference norm of the
    Jacobian along d: all outputs are kept from moving, not only the loss. It needs both graphs and costs 7F.

    `second_step=τ` gives images whose slope is below τ·‖∇ℓ‖_* another step: from z = u + hd by h along the gradient at
    z, back into the ball of radius h around u. Their slope is then taken there. τ = 0 means those whose loss fell. For
    a fraction s of such images a 6F step costs 6F + 3F·s, and 8F if all are. With batch statistics or dropout the whole
    batch passes again, for 8F always. An accelerator is waited for in every step, to see who they are.

    `alignment` and `omega` look at how the loss bends within h, and change nothing else. `out.alignment` is the cosine
    of the gradients at both ends: the backward of the loss also goes to the images, which is the first layer's work
    (with two graphs, or without gradients: one F). `omega=k` sets `out.omega` in every k-th penalised step, from the
    loss halfway, for one F.

    `y` are labels, or soft labels of the shape of the logits; with a `criterion` of your own whatever that takes:
    masks, multi-label targets, mappings, tuples. Tensors in them have one row per image, and the criterion returns one
    loss per image.

    `output` is a function from what the model returns to logits; a tensor, an object with `.logits` and a mapping with
    "logits" need none.
    """
    strength, squared, scale = form(lam, eps, weight, squared, scale)
    steps_by = eps if h is None else None
    h = default_step(eps) if h is None else h
    geometry = threat_named(threat)
    h, lazy, fraction, step = check(x, y, criterion, h, order, method, autocast, lazy, fraction, step, graphs)
    check_graphs(x=x, noise=noise)
    output_slope = check_output_slope(output_slope, method, order)
    second_step = check_second_step(second_step, method, order)
    alignment, omega = check_looks(alignment, omega, method, step)
    check_function("model", model, MODEL)
    y = tracked(y)
    check_functions(criterion, output)
    checked(geometry, x)
    noise = check_noise(noise, geometry, x, statistics)
    if method == "fd":
        check_length(h, steps_by, geometry, x, scale)
    check_batch_norm_mode(model, bn)
    if lazy > 1 and step is not None:
        strength, output_slope = (lazy * part if step % lazy == 0 else 0.0 for part in (strength, output_slope))

    looks = omega > 0 and (step is None or step % (lazy * omega) == 0)

    wants_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        calls = Calls(model, criterion, bn, autocast, output)
        pixels = calls.images(x)
        base = pixels if isinstance(noise, float) and noise == 0 else noisy(pixels, noise, geometry)
        calls.fill_caches(x.device.type)
        begun = calls.state.now(x.device)
        one_graph = graphs == 1 and method == "fd" and not output_slope
        terms = Terms(calls, begun, wanted=wants_graph) if one_graph else None
        penalised = fraction if strength or output_slope else 0.0
        by_clean = statistics == "clean" and base is not pixels
        with same_device(model, x, y), moved_by(calls, begun, pixels, y) if by_clean else nullcontext():
            clean = pass_at_base(calls, begun, base, y, penalised, step, terms)
        grad_norm, slope, first, bent = clean.loss.detach().new_full((4, len(x)), torch.nan)
        penalty, loss, change, ahead = clean.loss.new_zeros(()), clean.loss, None, None
        if clean.part is not None:
            length = h.to(clean.loss.device, clean.loss.dtype) if isinstance(h, Tensor) else h
            if isinstance(length, Tensor) and length.ndim:
                length = length[clean.index]
            mean = not squared and order == 1 and isinstance(length, float) and strength <= length
            looked_at = (alignment, looks, second_step, mean)
            difference = Difference(calls, clean.part, geometry, scale, length, order, *looked_at)
            if method == "double-backprop":
                found = difference.limit()
            elif terms is None:
                found = difference.with_two_graphs()
                if output_slope and found.logits is not None:
                    change = (found.logits - clean.part.logits).flatten(1).square().mean(1)
            else:
                found = difference.with_one_graph(terms, clean.share, strength, squared)
            slopes, ahead = found.values, found.ahead
            penalty = strength * (slopes.square().mean() / 2 if squared else slopes.abs().mean())
            if change is not None:
                penalty = penalty + output_slope * change.mean()
            if terms is not None:
                loss = terms.loss(clean.loss.detach() + penalty)
            elif method == "fd":
                loss = once_differentiable(clean.loss + penalty)
            else:
                loss = clean.loss + penalty
            grad_norm[clean.index] = geometry.dual_norm(found.gradient.detach()).to(grad_norm.dtype)
            slope[clean.index] = slopes.detach() / difference.shrinkage
            if found.first is not None:
                first[clean.index] = found.first / difference.shrinkage
            if found.omega is not None:
                bent[clean.index] = found.omega.to(bent.dtype)
    return RegularizedLoss(
        loss=loss if wants_graph else loss.detach(),
        clean=clean.loss.detach(),
        penalty=penalty.detach(),
        logits=clean.logits.detach(),
        grad_norm=grad_norm,
        slope=slope,
        output_change=None if change is None else change.detach(),
        first_slope=None if second_step is None else first,
        omega=bent if looks else None,
        _input=clean.part.x if clean.part else None,
        _ahead=ahead,
        _index=clean.index,
        _aligned=alignment,
    )
