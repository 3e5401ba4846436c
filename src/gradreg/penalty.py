"""The input gradient penalty by finite differences: Prop. 3.2 and Algorithm 1 of the paper.

One forward finds ℓ(x), one backward to the input the direction d of steepest ascent, one more forward ℓ(x + hd); then
(ℓ(x + hd) − ℓ(x))/h is the dual norm of the gradient, and an ordinary backward trains on it. No second derivative
is taken, so it runs where double backprop does not: compiled models, fused attention, distributed training.
"""

from dataclasses import dataclass
from math import sqrt
from types import EllipsisType
from typing import Literal

import torch
from torch import Tensor

from gradreg.errors import ConfigError, PrecisionError
from gradreg.losses import cross_entropy
from gradreg.norms import Threat, ThreatName, at_least_single, per_image
from gradreg.norms import threat as threat_named
from gradreg.passes import AutocastMode, BatchNormMode, Calls, Criterion, Model, Pass, check_batch_norm_mode

Scale = Literal["paper", "dual"]
Method = Literal["fd", "double-backprop"]

# The share of a finite difference that rounding may be worth before the call is refused.
ROUNDING_TOLERANCE = 0.02


@dataclass(frozen=True)
class RegularizedLoss:
    """What a step minimises, `loss = clean + penalty`, and what is worth logging: all but `loss` is detached."""

    loss: Tensor
    clean: Tensor
    penalty: Tensor
    logits: Tensor
    grad_norm: Tensor
    """‖∇ℓ(x)‖_* of each image by autograd; NaN where this step did not look (lazy, fraction)."""
    slope: Tensor
    """The slope that was penalised, of each image. It misses the gradient's by at most ω(h)/h: the loss's curvature."""
    _input: Tensor | None = None

    def backward(self) -> None:
        """The same as `loss.backward()`, less the first layer's input gradient, which nobody needs a second time."""
        torch.autograd.backward(self.loss, inputs=[leaf for leaf in _leaves(self.loss) if leaf is not self._input])


def regularized_loss(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    threat: ThreatName | Threat = "l2",
    lam: float | None = None,
    eps: float | None = None,
    weight: float = 1.0,
    squared: bool | None = None,
    scale: Scale | None = None,
    h: float | Tensor = 0.01,
    order: Literal[1, 2] = 1,
    method: Method = "fd",
    criterion: Criterion = cross_entropy,
    bn: BatchNormMode = "train",
    autocast: AutocastMode = "off",
    lazy: int = 1,
    fraction: float = 1.0,
    step: int | None = None,
) -> RegularizedLoss:
    """Mean loss of a batch plus its input gradient penalty; stands where `criterion(model(x), y)` stood.

    How strong, one of
      `lam`: (λ/2)·‖∇ℓ‖²_*, eq. (1). Algorithm 1 has no ½: for its λ pass twice that. With `squared=False`, λ·‖∇ℓ‖_*.
      `eps`: `weight`·ε·‖∇ℓ‖_*, in threat units: what an attacker of radius ε gains, to first order.

    `threat` is the norm of the *attack*; the gradient is measured in its dual. For "linf" the paper's experiments walk
    along sign(∇ℓ)/√N and so penalise ‖∇ℓ‖₁²/N: `scale="paper"`, the default with `lam`; h is then an l2 length.
    `scale="dual"`, the default with `eps`, walks along sign(∇ℓ) and penalises ‖∇ℓ‖₁ itself; h is then a pixel step.
    For "l2" and "l1" the two are the same.

    `h` is the length of the difference, one for all or one an image. `order=2` takes the central difference: error
    O(h²) for 10F a step (F: one forward) instead of 7F. `method="double-backprop"` is the exact norm, the reference.

    `bn="train"` leaves batch normalisation in train mode, as the authors do: batch statistics then let the images of a
    batch move each other's losses. Running statistics are updated once, by the clean batch. `bn="frozen"` uses the
    running statistics and updates nothing: every image on its own.

    Under autocast the passes run in full precision all the same, since bf16 keeps nothing of a difference over
    h = 0.01; `autocast="keep"` leaves them in low precision and refuses an h that rounding would drown.

    `lazy=k` computes the penalty at every k-th `step`, with k times the weight; `fraction=ρ` on a random part of the
    batch, drawn by `step`. Both keep its mean over steps. With k = 4 or ρ = ¼ a step costs 4F on average, against 3F
    without a penalty (ρ = ¼ with batch statistics: 4.75F, since the part needs a clean pass of its own).
    """
    strength, squared, scale = _form(lam, eps, weight, squared, scale)
    geometry = threat_named(threat)
    _check(x, y, h, order, method, autocast, lazy, fraction, step)
    check_batch_norm_mode(model, bn)
    if lazy > 1 and step is not None:
        strength = lazy * strength if step % lazy == 0 else 0.0

    wants_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        calls = Calls(model, criterion, bn, autocast)
        clean = _clean_pass(calls, calls.images(x), y, fraction if strength else 0.0, step)
        grad_norm, slope = clean.loss.detach().new_full((2, len(x)), torch.nan)
        penalty = clean.loss.new_zeros(())
        if clean.part is not None:
            length = h[clean.index] if isinstance(h, Tensor) and h.ndim else h
            gradient, slopes = _slopes(calls, clean.part, geometry, length, order, method, scale)
            penalty = strength * (slopes.square().mean() / 2 if squared else slopes.abs().mean())
            grad_norm[clean.index] = geometry.dual_norm(gradient.detach()).to(grad_norm.dtype)
            slope[clean.index] = slopes.detach()
        loss = clean.loss + penalty
    return RegularizedLoss(
        loss=loss if wants_graph else loss.detach(),
        clean=clean.loss.detach(),
        penalty=penalty.detach(),
        logits=clean.logits.detach(),
        grad_norm=grad_norm,
        slope=slope,
        _input=clean.part.x if clean.part else None,
    )


@dataclass(frozen=True)
class _Clean:
    """The clean batch: its mean loss, and the recorded pass of those images whose gradient is to be penalised."""

    loss: Tensor
    logits: Tensor
    part: Pass | None
    index: Tensor | EllipsisType = ...


def _clean_pass(calls: Calls, x: Tensor, y: Tensor, fraction: float, step: int | None) -> _Clean:
    size = len(x)
    count = min(size, max(1, round(fraction * size))) if fraction else 0
    if count == 0:
        losses, logits = calls.evaluate(x, y, track=True)
        return _Clean(losses.mean(), logits, None)
    if count == size:
        part = calls.record(x, y, track=True)
        return _Clean(part.losses.mean(), part.logits, part)

    shuffled = torch.randperm(size, generator=torch.Generator().manual_seed(step or 0)).to(x.device)
    index, rest = shuffled[:count], shuffled[count:]
    if calls.images_interact:
        losses, logits = calls.evaluate(x, y, track=True)
        # The difference needs both its losses under the statistics of the same images, so the part passes by itself.
        return _Clean(losses.mean(), logits, calls.record(x[index], y[index], track=False), index)
    part = calls.record(x[index], y[index], track=True)
    losses, logits = calls.evaluate(x[rest], y[rest], track=True)
    in_order = torch.cat([part.logits, logits])[shuffled.argsort()]
    return _Clean((part.losses.sum() + losses.sum()) / size, in_order, part, index)


def _slopes(
    calls: Calls, part: Pass, geometry: Threat, h: float | Tensor, order: int, method: Method, scale: Scale
) -> tuple[Tensor, Tensor]:
    """The input gradient of each image's own loss, and the loss's slope along its steepest ascent, eq. (10)."""
    exact = method == "double-backprop"
    gradient = part.input_gradient(differentiable=exact)
    shorter = 1 / sqrt(gradient[0].numel()) if geometry.name == "linf" and scale == "paper" else 1.0
    if exact:
        return gradient, shorter * geometry.dual_norm(gradient)

    _refuse_if_rounding_drowns(part, shorter * geometry.dual_norm(gradient), h)
    move = per_image(h, part.x) * shorter * geometry.ascent(gradient)
    x = part.x.detach()
    ahead = calls.repeat(part, (x + move).to(x.dtype))
    behind = part.losses if order == 1 else calls.repeat(part, (x - move).to(x.dtype))
    return gradient, (ahead - behind) / (h * order)


def _refuse_if_rounding_drowns(part: Pass, slope: Tensor, h: float | Tensor) -> None:
    """Compare the rounding of half-precision logits with the change of the loss that the difference is to resolve."""
    kind = part.logits.dtype
    if kind == at_least_single(kind):
        return
    logits = part.logits.detach().float()
    rounding = torch.finfo(kind).eps * logits.abs().amax(1)
    safe = (rounding / (ROUNDING_TOLERANCE * slope)).nanmedian().item()
    smallest = torch.as_tensor(h).min().item()
    if smallest < safe:
        name = str(kind).removeprefix("torch.")
        raise PrecisionError(
            f"In {name} rounding is worth about {ROUNDING_TOLERANCE * safe / smallest:.0%} of a finite difference over "
            f"h = {smallest:g}: use h ≥ {safe:.2g}, or keep the weights in float32 and leave autocast='off'."
        )


def _form(
    lam: float | None, eps: float | None, weight: float, squared: bool | None, scale: Scale | None
) -> tuple[float, bool, Scale]:
    """Strength, whether the norm is squared, and its scale."""
    if (lam is None) == (eps is None):
        raise ConfigError("Say how strong the penalty is by either lam=, as in the paper, or eps=, in threat units.")
    if scale not in (None, "paper", "dual"):
        raise ConfigError(f"scale is {scale!r}, but it is 'paper' or 'dual'.")
    if lam is not None:
        if weight != 1.0:
            raise ConfigError("weight= multiplies eps=; with lam= change lam itself.")
        return _not_negative("lam", lam), squared is not False, scale or "paper"
    assert eps is not None
    if squared or scale == "paper":
        raise ConfigError("eps= penalises weight·eps·‖∇ℓ‖_*, unsquared and in the true dual norm: use lam= for others.")
    return _not_negative("eps", eps) * _not_negative("weight", weight), False, "dual"


def _not_negative(name: str, value: float) -> float:
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{name} is {value}, but the strength of a penalty is a number ≥ 0.")
    return value


def _check(
    x: Tensor,
    y: Tensor,
    h: float | Tensor,
    order: int,
    method: str,
    autocast: str,
    lazy: int,
    fraction: float,
    step: int | None,
) -> None:
    if torch.is_inference_mode_enabled():
        raise ConfigError("The penalty needs gradients, which torch.inference_mode() forbids: use torch.no_grad().")
    if x.ndim < 2 or not x.is_floating_point():
        raise ConfigError(f"x is a {x.dtype} tensor of shape {tuple(x.shape)}, but it is a batch of float images.")
    if len(x) == 0 or len(y) != len(x):
        raise ConfigError(f"There are {len(x)} images and {len(y)} labels, but one label an image is needed.")
    if isinstance(h, Tensor):
        if h.shape not in ((), (len(x),)):
            raise ConfigError(
                f"h has shape {tuple(h.shape)}, but it is one length for all {len(x)} images or one each."
            )
    elif not h > 0:
        raise ConfigError(f"h is {h}, but the step of a finite difference is positive; the paper's is 0.01.")
    for name, value, choices in (
        ("order", order, (1, 2)),
        ("method", method, ("fd", "double-backprop")),
        ("autocast", autocast, ("off", "keep")),
    ):
        if value not in choices:
            raise ConfigError(f"{name} is {value!r}, but it is one of {', '.join(map(repr, choices))}.")
    if lazy < 1 or not 0 < fraction <= 1:
        raise ConfigError(f"lazy is {lazy} and fraction {fraction}, but they need lazy ≥ 1 and 0 < fraction ≤ 1.")
    if step is None and (lazy > 1 or fraction < 1):
        raise ConfigError("lazy= and fraction= need step=, the number of this training step, to know whose turn it is.")


def _leaves(loss: Tensor) -> list[Tensor]:
    """The tensors that `loss.backward()` would give a gradient to."""
    leaves, seen, ahead = [], set(), [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        ahead.extend(parent for parent, _ in node.next_functions)
    return leaves
