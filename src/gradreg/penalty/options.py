"""The options of `regularized_loss`: their defaults and checks."""

from typing import Literal

import torch
from torch import Tensor

from gradreg.errors import ConfigError, PrecisionError
from gradreg.norms import Threat
from gradreg.penalty.passes import Pass
from gradreg.precision import at_least_single

Scale = Literal["paper", "dual"]
Method = Literal["fd", "double-backprop"]

_PAPER_STEP = 0.01
# A call is refused if rounding makes up more than this fraction of the finite difference.
_ROUNDING_TOLERANCE = 0.02


def form(
    lam: float | None, eps: float | None, weight: float, squared: bool | None, scale: Scale | None
) -> tuple[float, bool, Scale]:
    """Strength, whether the norm is squared, and its scale."""
    if (lam is None) == (eps is None):
        raise ConfigError("Pass either lam=, the paper's strength, or eps=, the strength in threat units.")
    if scale not in (None, "paper", "dual"):
        raise ConfigError(f"scale must be 'paper' or 'dual'; got {scale!r}.")
    if lam is not None:
        if weight != 1.0:
            raise ConfigError("weight= goes with eps=; with lam=, change lam itself.")
        return _not_negative("lam", lam), squared is not False, scale or "paper"
    assert eps is not None
    if squared or scale == "paper":
        raise ConfigError("eps= penalises weight·eps·‖∇ℓ‖_*, unsquared, in the dual norm: use lam= for any other form.")
    return _not_negative("eps", eps) * _not_negative("weight", weight), False, "dual"


def divides_by_root(threat: Threat, scale: Scale) -> bool:
    """Whether the penalty is ‖∇ℓ‖_*/√N. The paper does that for l∞ alone, so that sign(∇ℓ)/√N has l2 length 1."""
    return scale == "paper" and threat.name == "linf"


def default_step(eps: float | None) -> float:
    """The paper's h with `lam`; ε/2 with `eps`, so that the difference looks where the attacker goes."""
    return eps / 2 if eps else _PAPER_STEP


def _not_negative(name: str, value: float) -> float:
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{name} must be a finite number ≥ 0; got {value}.")
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
    """Raise an error for invalid options."""
    if torch.is_inference_mode_enabled():
        raise ConfigError(
            "The penalty needs gradients, which torch.inference_mode() disables: use torch.no_grad() instead."
        )
    if x.ndim < 2 or not x.is_floating_point():
        raise ConfigError(f"x must be a float batch of shape (N, …); got {x.dtype} of shape {tuple(x.shape)}.")
    if len(x) == 0 or len(y) != len(x):
        raise ConfigError(
            f"Expected one label per image, and at least one image; got {len(x)} images and {len(y)} labels."
        )
    if isinstance(h, Tensor):
        if h.shape not in ((), (len(x),)):
            raise ConfigError(
                f"h must be one number, or one per image for all {len(x)} images; got shape {tuple(h.shape)}."
            )
    elif not h > 0:
        raise ConfigError(f"h must be positive (the paper's is 0.01); got {h}.")
    for name, value, choices in (
        ("order", order, (1, 2)),
        ("method", method, ("fd", "double-backprop")),
        ("autocast", autocast, ("off", "keep")),
        ("graphs", graphs, (1, 2)),
    ):
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")
    if lazy < 1 or not 0 < fraction <= 1:
        raise ConfigError(f"lazy must be at least 1 and fraction in (0, 1]; got lazy={lazy} and fraction={fraction}.")
    if step is None and (lazy > 1 or fraction < 1):
        raise ConfigError("lazy= and fraction= need step=, the number of this training step.")


def refuse_if_rounding_drowns(part: Pass, slope: Tensor, h: float | Tensor) -> None:
    """Compare the rounding of half-precision logits with the change of the loss that the difference is to resolve."""
    kind = part.logits.dtype
    if kind == at_least_single(kind):
        return
    logits = part.logits.detach().float()
    rounding = torch.finfo(kind).eps * logits.abs().amax(1)
    safe = (rounding / (_ROUNDING_TOLERANCE * slope)).nanmedian().item()
    smallest = torch.as_tensor(h).min().item()
    if smallest < safe:
        name = str(kind).removeprefix("torch.")
        raise PrecisionError(
            f"In {name}, rounding makes up about {_ROUNDING_TOLERANCE * safe / smallest:.0%} of a finite difference "
            f"over h = {smallest:g}: use h ≥ {safe:.2g}, or keep the weights in float32 and leave autocast='off'."
        )
