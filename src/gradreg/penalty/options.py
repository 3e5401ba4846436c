"""The options of `regularized_loss`: their defaults and checks."""

from math import isfinite, sqrt
from typing import Literal

import torch
from torch import Tensor

from gradreg.calling.answers import OUTPUT, Output
from gradreg.calling.targets import Target, check_targets
from gradreg.checks.objects import check_function
from gradreg.checks.scalars import check_choice, check_integer, check_number, check_switch, shown
from gradreg.checks.tensors import (
    NORMALISED,
    check_batch,
    check_device,
    check_labels,
    check_layout,
    check_per_image,
    check_pixels,
    on_host,
)
from gradreg.errors import ConfigError, DataError
from gradreg.losses import cross_entropy
from gradreg.norms import L1, L2, Linf, Threat
from gradreg.norms.memory import Memory
from gradreg.penalty.passes import Criterion
from gradreg.precision import at_least_single

Scale = Literal["paper", "dual"]
Method = Literal["fd", "double-backprop"]

Statistics = Literal["noisy", "clean"]

_PAPER_STEP = 0.01
# How far a pixel can lie from another one, however images are normalised.
_WIDTH = 2 * NORMALISED
_LENGTHS = Memory[dict[object, float]](dict)


def form(
    lam: float | None, eps: float | None, weight: float, squared: bool | None, scale: Scale | None
) -> tuple[float, bool, Scale]:
    """Strength, whether the norm is squared, and its scale."""
    if (lam is None) == (eps is None):
        raise ConfigError("Pass either lam=, the paper's strength, or eps=, the strength in threat units.")
    if scale is not None:
        check_choice("scale", scale, ("paper", "dual"))
    if squared is not None:
        check_switch("squared", squared)
    weight = check_number("weight", weight, least=0)
    if lam is not None:
        if weight != 1.0:
            raise ConfigError("weight= goes with eps=; with lam=, change lam itself.")
        return check_number("lam", lam, least=0), squared is not False, scale or "paper"
    if squared or scale == "paper":
        raise ConfigError("eps= penalises weight·eps·‖∇ℓ‖_*, unsquared, in the dual norm: use lam= for any other form.")
    return check_number("eps", eps, least=0) * weight, False, "dual"


def divides_by_root(threat: Threat, scale: Scale) -> bool:
    """Whether the penalty is ‖∇ℓ‖_*/√N. The paper does that for l∞ alone, so that sign(∇ℓ)/√N has l2 length 1."""
    return scale == "paper" and type(threat) is Linf


def default_step(eps: float | None) -> float:
    """The paper's h with `lam`; ε/2 with `eps`, so that the difference looks where the attacker goes."""
    return check_number("eps", eps, least=0) / 2 if eps else _PAPER_STEP


def check_length(h: float | Tensor, eps: float | None, geometry: Threat, x: Tensor, scale: Scale) -> None:
    """Refuse a step that is longer than any image is wide, where a loss is flat or overflows. `eps`: h is its half.

    One h per image is looked at on the host only.
    """
    if isinstance(h, Tensor):
        if not on_host(h):
            return
        h = float(h.detach().amax())
    by_root = divides_by_root(geometry, scale)
    most = _longest(geometry, x) * (sqrt(x[0].numel()) if by_root else 1)
    if h > most:
        name, most, h = ("h", most, h) if eps is None else ("eps without h=, a step of eps/2,", 2 * most, eps)
        norm = "l2 (scale='paper')" if by_root else geometry.name
        raise ConfigError(
            f"{name} must be at most {most:.4g}, which moves every pixel by {_WIDTH:g}; got {h:g}. It is a length in "
            f"{norm}, in units of pixels in [0, 1]."
        )


def per_pixel(h: float | Tensor, geometry: Threat, x: Tensor, scale: Scale) -> float | Tensor:
    """How far a step of that length moves a pixel, if all move alike, whatever the norm and the size of images."""
    root = sqrt(x[0].numel()) if divides_by_root(geometry, scale) else 1.0
    return h / (root * _length_of_ones(geometry, x))


def _longest(geometry: Threat, x: Tensor) -> float:
    """The length that moves every pixel by as much as a pixel can lie from another one."""
    return _WIDTH * _length_of_ones(geometry, x)


def _length_of_ones(geometry: Threat, x: Tensor) -> float:
    """‖1‖ of such images; of a norm that is no lp norm it is asked once for each shape."""
    if type(geometry) in (L1, L2, Linf) and geometry.p is not None:
        return float(x[0].numel() ** (1 / geometry.p))
    known = _LENGTHS.of(geometry)
    kind = tuple(x.shape[1:]), x.device
    if kind not in known:
        with torch.no_grad():
            found = geometry.norm(torch.ones_like(x[:1], dtype=at_least_single(x.dtype))).item()
        known[kind] = found if isfinite(found) and found > 0 else float("inf")
    return known[kind]


def check_functions(criterion: Criterion, output: Output | None) -> None:
    """Refuse what cannot be called, before the model is."""
    check_function("criterion", criterion)
    if output is not None:
        check_function("output", output, OUTPUT)


def check_pair(x: Tensor, y: Target, criterion: Criterion) -> Target:
    """Refuse images and targets that do not go together; labels as int64. Pixels are another matter."""
    check_batch(x)
    check_targets(y, len(x))
    if criterion is cross_entropy and not (isinstance(y, Tensor) and y.is_floating_point() and y.ndim > 1):
        return check_labels(y, len(x))  # probabilities are fine
    return y


def check(
    x: Tensor,
    y: Target,
    criterion: Criterion,
    h: float | Tensor,
    order: int,
    method: str,
    autocast: str,
    lazy: int,
    fraction: float,
    step: int | None,
    graphs: int,
) -> tuple[float | Tensor, int, float, int | None]:
    """Refuse invalid images and options; h, lazy, fraction and step as Python's own numbers.

    Pixels are looked at on the host only: on an accelerator no step waits for a check.
    """
    if torch.is_inference_mode_enabled():
        raise ConfigError(
            "The penalty needs gradients, which torch.inference_mode() disables: use torch.no_grad() instead."
        )
    check_pair(x, y, criterion)
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise ConfigError(
            "The penalty takes gradients itself, which torch.func (grad, vmap, jvp) does not allow inside of it: call "
            "it outside, and differentiate its loss by loss.backward() or torch.autograd.grad."
        )
    h = check_per_image("h", h, len(x), above=0, usual="the paper's is 0.01")
    for name, value, choices in (
        ("order", order, (1, 2)),
        ("method", method, ("fd", "double-backprop")),
        ("autocast", autocast, ("off", "keep")),
        ("graphs", graphs, (1, 2)),
    ):
        check_choice(name, value, choices)
    lazy, fraction = check_integer("lazy", lazy, least=1), check_number("fraction", fraction, above=0, most=1)
    step = None if step is None else check_integer("step", step, least=0)
    if step is None and (lazy > 1 or fraction < 1):
        raise ConfigError("lazy= and fraction= need step=, the number of this training step.")
    check_pixels(x)
    return h, lazy, fraction, step


def check_graphs(**given: float | Tensor) -> None:
    """Refuse tensors that were computed from others with gradients, which these would wait for in vain."""
    if not torch.is_grad_enabled():
        return
    for name, value in given.items():
        if isinstance(value, Tensor) and value.grad_fn is not None:
            raise DataError(
                f"{name} must come without a graph, since the penalty gives no gradient to what it was computed from; "
                f"got {value.grad_fn.name()}: pass {name}.detach(), or make what computes it a part of the model."
            )


def check_noise(noise: float | Tensor, geometry: Threat, x: Tensor, statistics: str) -> float | Tensor:
    """A radius, or the perturbation of each image, that leaves something of the images; values on the host only."""
    check_choice("statistics", statistics, ("noisy", "clean"))
    if not isinstance(noise, Tensor):
        noise, most = check_number("noise", noise, least=0, usual="a radius in pixel units"), _longest(geometry, x)
        if noise > most:
            raise ConfigError(
                f"noise must be at most {most:.4g}, which moves every pixel by {_WIDTH:g}; got {noise:g}. It is a "
                f"radius in {geometry.name}, in units of pixels in [0, 1]."
            )
        return noise
    check_layout("noise", noise)
    if noise.shape != x.shape or not noise.is_floating_point():
        raise DataError(f"noise must be a radius, or floats shaped as x, {tuple(x.shape)}; got {shown(noise)}.")
    check_device("noise", noise, x)
    if on_host(noise) and not float(noise.detach().abs().amax()) <= _WIDTH:
        raise DataError(f"noise must hold finite numbers of at most {_WIDTH:g}, in units of pixels in [0, 1].")
    return noise.detach()


def check_output_slope(value: float, method: str, order: int) -> float:
    """The weight of the output slope, which is a difference of one step ahead."""
    value = check_number("output_slope", value, least=0)
    if value and (method != "fd" or order != 1):
        raise ConfigError("output_slope= is a forward difference: it needs method='fd' and order=1.")
    return value


def check_looks(alignment: bool, omega: int, method: str, step: int | None) -> tuple[bool, int]:
    """Whether gradients are compared, and how often the loss is looked at halfway: both need a point ahead."""
    alignment, omega = check_switch("alignment", alignment), check_integer("omega", omega, least=0)
    if (alignment or omega) and method != "fd":
        raise ConfigError("alignment= and omega= look at x + hd: they need method='fd'.")
    if omega > 1 and step is None:
        raise ConfigError("omega= above 1 needs step=, the number of this training step.")
    return alignment, omega


def check_second_step(value: float | None, method: str, order: int) -> float | None:
    """The part of the gradient's norm that a slope must reach for the first step to be believed."""
    if value is None:
        return None
    if method != "fd" or order != 1:
        raise ConfigError("second_step= goes on from x + hd: it needs method='fd' and order=1.")
    return check_number("second_step", value, least=0, usual="0.7: slopes below 0.7 times the gradient's norm")
