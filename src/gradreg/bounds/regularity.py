"""What the bounds need to know about a model: its Lipschitz constant L and its modulus of continuity ω(ε), §2.2.

Both are suprema over all images and can only be estimated. `Regularity` holds the estimate and how it was made.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import torch
from torch import Tensor

from gradreg.bounds.calibration import Calibration
from gradreg.bounds.loss import Scores
from gradreg.checks.fields import check_fields
from gradreg.checks.objects import check_kind
from gradreg.checks.scalars import Count, Natural, Range, check_number, check_numbers, shown
from gradreg.checks.tensors import check_dense, check_width
from gradreg.codec import join
from gradreg.columns import check_number as check_count
from gradreg.columns import check_whole
from gradreg.display.numbers import significant
from gradreg.display.summary import Shown, Summary, images, spread
from gradreg.errors import ConfigError, DataError
from gradreg.norms import THREATS, Threat
from gradreg.reading import one_sentence
from gradreg.storage import read, write

_Method = Literal["paper", "ascent", "local", "given"]

_TENSORS = ("lipschitz", "eps", "omega", "keys", "shape", "lipschitz_upper", "omega_upper", "crossing")
# Files of before do not have these.
_SINCE = ("crossing", "criterion", "threshold", "calibration")
_CALIBRATED_ON = "calibrated_on"
_UNSAVED = "geometry"


def _nothing() -> Tensor:
    return torch.zeros(0, device="cpu")


@dataclass(frozen=True, repr=False)
class Regularity(Shown):
    """L and ω on a grid of radii: one for all images, or ("local") one for each, and then valid up to the grid's end.

    Flags are those of the extreme value fits, as "lipschitz:steep" or "omega[0.5]:few-distinct".
    """

    threat: str
    """The name of the norm."""
    method: _Method
    lipschitz: Tensor
    """L: one number, or one per image."""
    eps: Tensor
    """Radii ε₁ < … < ε_G; ω(0) = 0 goes without saying."""
    omega: Tensor
    """ω(ε₁) ≤ … ≤ ω(ε_G), or one such row per image."""
    scores: Scores = "probabilities"
    topk: Count = 1
    p: Annotated[float, Range(least=0, most=1)] = 0.0
    block_size: Natural = 0
    blocks: Natural = 0
    seed: Natural = 0
    flags: tuple[str, ...] = ()
    keys: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64, device="cpu"))
    """Fingerprints of the images it was estimated on."""
    shape: Tensor = field(default_factory=_nothing)
    """ξ of the fits: of L, then of ω at each radius."""
    lipschitz_upper: Tensor = field(default_factory=_nothing)
    """95 % upper limit of the estimate of L, for how well it is determined."""
    omega_upper: Tensor = field(default_factory=_nothing)
    crossing: Tensor = field(default_factory=_nothing)
    """Norm of the nearest v with ℓ(x + v) ≥ ℓ₀ that "local" found, per image; infinite where it found none."""
    criterion: str = "margin"
    """The loss ℓ; one of the user's own by its name, since functions are not saved."""
    threshold: float = 0.0
    """ℓ₀: images with a smaller loss are always classified correctly."""
    calibration: Calibration | None = None
    """By what bounds are divided so that they hold against attacks for a share 1 − α of images."""
    geometry: Threat | None = field(default=None, compare=False)
    """The norm itself, where its name does not say which it is; not saved."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in _TENSORS:
            value = check_kind(name, getattr(self, name), (Tensor,))
            check_dense(name, value, ConfigError)
            check_width(name, value, ConfigError)
        if self.threat not in THREATS and self.geometry is None:
            raise ConfigError(
                f"threat must be one of {', '.join(THREATS)}, or the name of the norm that is passed as geometry; got "
                f"{self.threat!r}."
            )
        if self.geometry is not None and self.geometry.name != self.threat:
            raise ConfigError(f"geometry must be the norm {self.threat}; got {self.geometry.name}.")
        eps, omega = self.eps, self.omega
        check_numbers("eps, the radii of ω,", eps, above=0, ascending=True)
        if eps.ndim != 1:
            raise ConfigError(f"eps must have one axis, the radii of ω; got shape {tuple(eps.shape)}.")
        if omega.ndim == 0 or omega.shape[-1] != len(eps) or omega.shape[:-1] != self.lipschitz.shape:
            raise ConfigError(
                f"ω must have shape {(*self.lipschitz.shape, len(eps))}, by L and the radii; got {tuple(omega.shape)}."
            )
        if not bool((omega.diff(dim=-1) >= 0).all()) or not bool((omega >= 0).all()):
            raise ConfigError("ω must be ≥ 0 and must not fall with the radius, like any supremum over growing balls.")
        if not bool((self.lipschitz > 0).all()):
            raise ConfigError("L must be positive: a constant loss has no margin to bound.")
        for name, shapes in (
            ("keys", [(len(self.keys.flatten()),)]),
            ("shape", [(0,), (1 + len(eps),)]),
            ("lipschitz_upper", [(0,), self.lipschitz.shape]),
            ("omega_upper", [(0,), omega.shape]),
        ):
            if getattr(self, name).shape not in shapes:
                found = tuple(getattr(self, name).shape)
                raise ConfigError(f"{name} must have shape {' or '.join(map(str, map(tuple, shapes)))}; got {found}.")
        if bool(self.lipschitz_upper.isnan().any()) or bool(self.omega_upper.isnan().any()):
            raise ConfigError("lipschitz_upper and omega_upper must be limits, finite or not; got NaN.")
        if self.crossing.ndim != 1:
            raise ConfigError(f"crossing must have one entry per image; got {shown(self.crossing)}.")
        if self.crossing.numel() and self.crossing.shape != self.lipschitz.shape:
            raise ConfigError(f"crossing must have one entry per image; got shape {tuple(self.crossing.shape)}.")

    @property
    def norm(self) -> Threat:
        """The norm that L, ω and the bounds are about."""
        return THREATS[self.threat] if self.geometry is None else self.geometry

    @property
    def per_image(self) -> bool:
        """Each image has its own L and ω."""
        return self.lipschitz.ndim > 0

    def omega_at(self, eps: float) -> Tensor:
        """ω(ε) at the next radius of the grid, so never too small; NaN beyond its end."""
        eps = check_number("eps", eps, least=0)
        if eps == 0:
            return torch.zeros_like(self.lipschitz)
        index = int(torch.searchsorted(self.eps, eps * (1 - 1e-6)))
        return self.omega[..., index] if index < len(self.eps) else torch.full_like(self.lipschitz, torch.nan)

    def summary(self) -> Summary:
        """L, ω at a few radii of its grid, and what they are worth."""
        middle, last = len(self.eps) // 2, len(self.eps) - 1
        omega = {float(self.eps[at]): float(self.omega[..., at].mean()) for at in (0, middle, last)}
        of = f"{images(len(self.keys))}" if len(self.keys) else "an unknown number of images"
        promise = self.calibration
        return Summary(
            f"Regularity: {self.norm.symbol}, estimated by {self.method!r} on {of}; heuristic",
            [
                ("L", spread(self.lipschitz)),
                ("ω" + ", mean" * self.per_image, ", ".join(f"{significant(w)} at {e:.3g}" for e, w in omega.items())),
                ("about", f"{self.criterion:.80}, of {self.scores}" + f", top-{self.topk}" * (self.topk > 1)),
                (
                    "calibrated",
                    "" if promise is None else f"by {promise.attacks} on {promise.n}, α = {promise.alpha:g}",
                ),
                ("flags", ", ".join(self.flags)),
            ],
        )

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file."""
        tensors = {name: getattr(self, name).cpu() for name in _TENSORS}
        facts: dict[str, Any] = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name not in (*tensors, _UNSAVED)
        }
        if self.calibration is not None:
            tensors[_CALIBRATED_ON] = self.calibration.keys
            facts["calibration"] = {name: each for name, each in vars(self.calibration).items() if name != "keys"}
        write(path, "regularity", tensors, facts)

    @classmethod
    def load(cls, path: str | Path, threat: Threat | None = None) -> "Regularity":
        """Read what `save` wrote; a norm of your own is not in the file, so pass it as `threat`."""
        tensors, facts = read(path, "regularity")
        with one_sentence(path, "delete it, or estimate it again"):
            given = _fields(tensors, facts)
        name = given["threat"]
        if threat is not None:
            check_kind("threat", threat, (Threat,))
        if name not in THREATS and (threat is None or threat.name != name):
            passed = "none" if threat is None else threat.name
            raise ConfigError(f"{path} is about the norm {shown(name)}: pass it as threat=; got {passed}.")
        with one_sentence(path, "delete it, or estimate it again"):
            found = cls(**given, geometry=None if name in THREATS else threat)
            found._check_columns()
        return found

    def _check_columns(self) -> None:
        """What `__post_init__` leaves out, since estimates cannot go wrong there and files can."""
        for name in _TENSORS:
            column = getattr(self, name)
            if name != "keys" and not column.is_floating_point():
                raise DataError(f"{name} must be floats; got {column.dtype}.")
        check_whole("keys", self.keys, self.keys.numel(), -(2**63))
        if self.calibration is not None:
            for name in ("scale", "omega_scale", "lipschitz_scale"):
                check_count(f"calibration.{name}", getattr(self.calibration, name), 0.0, infinite=True)
            check_count("calibration.alpha", self.calibration.alpha, 0.0, 1.0)
            check_count("calibration.unbroken", self.calibration.unbroken, 0, self.calibration.n)
            check_whole("calibration.keys", self.calibration.keys, self.calibration.keys.numel(), -(2**63))


def _fields(tensors: dict[str, Tensor], facts: dict[str, Any]) -> dict[str, Any]:
    """The fields that a file holds, each of its type; those that files of before do not have may be missing."""
    keys, calibration = tensors.pop(_CALIBRATED_ON, None), facts.pop("calibration", None)
    known = {each.name for each in fields(Regularity)} - {_UNSAVED, "calibration"}
    found = {*facts, *tensors}
    if not known - set(_SINCE) <= found <= known or not set(tensors) <= set(_TENSORS) or facts.keys() & tensors.keys():
        raise DataError("It is not a regularity of this version of gradreg.")
    if (calibration is None) != (keys is None):
        raise DataError("It must have a calibration and the images of it, or neither.")
    hints = get_type_hints(Regularity)
    given = {name: join(hints[name], value, {}, name) for name, value in facts.items()}
    if keys is not None:
        given["calibration"] = join(Calibration, calibration, {"keys": keys}, "")
    return {**given, **tensors}
