"""What the options of `regularized_loss` may be, and what they come to."""

from typing import Literal

import torch
from torch import Tensor

from gradreg.errors import ConfigError, PrecisionError
from gradreg.penalty.passes import Pass
from gradreg.precision import at_least_single

Scale = Literal["paper", "dual"]
Method = Literal["fd", "double-backprop"]

PAPER_STEP = 0.01
# The share of a finite difference that rounding may be worth before the call is refused.
ROUNDING_TOLERANCE = 0.02


def form(
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


def default_step(eps: float | None) -> float:
    """The paper's h with `lam`; ε/2 with `eps`, so that the difference looks where the attacker goes."""
    return eps / 2 if eps else PAPER_STEP


def _not_negative(name: str, value: float) -> float:
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{name} is {value}, but the strength of a penalty is a number ≥ 0.")
    return value


def check(
    x: Tensor,
    y: Tensor,
    h: float | Tensor,
    order: int,
    method: str,
    autocast: str,
    lazy: int,
    fraction: float,
    step: int | None,
    graphs: int,
) -> None:
    """Refuse what could not mean anything."""
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
        ("graphs", graphs, (1, 2)),
    ):
        if value not in choices:
            raise ConfigError(f"{name} is {value!r}, but it is one of {', '.join(map(repr, choices))}.")
    if lazy < 1 or not 0 < fraction <= 1:
        raise ConfigError(f"lazy is {lazy} and fraction {fraction}, but they need lazy ≥ 1 and 0 < fraction ≤ 1.")
    if step is None and (lazy > 1 or fraction < 1):
        raise ConfigError("lazy= and fraction= need step=, the number of this training step, to know whose turn it is.")


def refuse_if_rounding_drowns(part: Pass, slope: Tensor, h: float | Tensor) -> None:
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
