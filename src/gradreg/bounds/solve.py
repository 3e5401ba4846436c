"""The paper's two lower bounds on the distance to an adversarial image, Prop. 2.2, for all images at once.

They would be bounds if L and ω were known. They are estimates, so these are heuristics: see `violations`.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from gradreg.bounds.calibration import Calibration
from gradreg.bounds.data import batches, check
from gradreg.bounds.errors import BoundsError
from gradreg.bounds.loss import CriterionName, same_loss
from gradreg.bounds.regularity import Regularity
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_choice, check_integer, shown
from gradreg.checks.tensors import check_column, check_dense, check_width
from gradreg.classifier import Classifier
from gradreg.display.summary import Shown, Summary, counted, images, spread
from gradreg.errors import ConfigError, DataError
from gradreg.fingerprints import image_keys
from gradreg.norms import checked
from gradreg.penalty.passes import Criterion, Model

_Envelope = Literal["step", "linear"]

# Data sets contain a few duplicates; beyond this fraction the same set was used twice.
_SHARED = 0.01


@dataclass(frozen=True, repr=False)
class Bound(Shown):
    """Radii that should contain no adversarial image, one of each kind per image; 0 for misclassified images."""

    lipschitz: Tensor
    """L-bound: max(ℓ₀ − ℓ(x), 0)/L."""
    omega: Tensor
    """ω-bound: the largest ε with ℓ₀ − ℓ(x) − ω(ε) ≥ ε‖∇ℓ(x)‖_*."""
    censored: Tensor
    """The ω-bound holds up to the end of ω's grid and may be larger."""
    margin: Tensor
    """ℓ(x): the margin, or the loss that the regularity is about."""
    grad_norm: Tensor
    zero_gradient: Tensor
    """∇ℓ(x) is exactly zero: the first-order term says nothing about this image."""
    threat: str
    method: str
    flags: tuple[str, ...]
    omega_half: Tensor
    """ω(0.5); NaN where the grid ends before."""
    omega_one: Tensor
    score: Tensor
    """What calibration divides: how near the search of "local" came to ℓ₀, or the ω-bound."""
    calibration: Calibration | None = None

    kind = "heuristic"

    @property
    def calibrated(self) -> Tensor | None:
        """A radius below what the attacks of the calibration find, for a share 1 − α of images; None without one."""
        return None if self.calibration is None else self.score / self.calibration.scale

    @property
    def calibrated_omega(self) -> Tensor | None:
        """The same from the ω-bound alone."""
        return None if self.calibration is None else self.omega / self.calibration.omega_scale

    @property
    def calibrated_lipschitz(self) -> Tensor | None:
        """The same from the L-bound alone."""
        return None if self.calibration is None else self.lipschitz / self.calibration.lipschitz_scale

    @property
    def best(self) -> Tensor:
        """The larger of the two: both are lower bounds under the same assumption."""
        return self.lipschitz.maximum(self.omega)

    def summary(self) -> Summary:
        """Both bounds over the images, and where they say nothing."""
        n = len(self.omega)
        sides = {"L-bound": self.lipschitz, "ω-bound": self.omega, "calibrated": self.calibrated}
        return Summary(
            f"Bound: {images(n)}, {self.threat}, {self.kind} (by {self.method!r})",
            [
                *((name, "" if bound is None else spread(bound)) for name, bound in sides.items()),
                ("gradient norm", spread(self.grad_norm)),
                ("no bound", counted(int((self.omega == 0).sum()), n)),
                ("up to the end of ω's grid", counted(int(self.censored.sum()), n)),
                ("gradient exactly 0", counted(int(self.zero_gradient.sum()), n)),
                ("flags", ", ".join(self.flags)),
            ],
        )

    def statistics(self) -> dict[str, float]:
        """The columns of the paper's Table 3 (ω averaged over images if each has its own), and the mean bounds."""
        return {
            "grad_norm_mean": float(self.grad_norm.mean()),
            "grad_norm_max": float(self.grad_norm.max()),
            "omega(0.5)": float(self.omega_half.mean()),
            "omega(1.0)": float(self.omega_one.mean()),
            "lipschitz_bound_mean": float(self.lipschitz.mean()),
            "omega_bound_mean": float(self.omega.mean()),
        }


@validated
def bounds(
    model: Model,
    x: Tensor,
    y: Tensor,
    regularity: Regularity,
    *,
    criterion: CriterionName | Criterion | None = None,
    envelope: _Envelope | None = None,
    batch_size: int = 256,
) -> Bound:
    """Both bounds of each image, from one forward and one backward.

    Between the radii of its grid ω is taken as at the next one: `envelope="step"`, never too small. "linear"
    interpolates, which is closer, and too small where ω is concave. Default: "linear" for what "local" found, since it
    did not search on the grid and its slack allows for more, and "step" otherwise. A `criterion` of your own, which the
    regularity was estimated with, has to be passed again.
    """
    if not isinstance(regularity, Regularity):
        raise ConfigError(f"regularity must be a Regularity, of estimate_regularity; got {shown(regularity)}.")
    if envelope is None:
        envelope = "linear" if len(regularity.crossing) else "step"
    check_choice("envelope", envelope, get_args(_Envelope))
    batch_size = check_integer("batch_size", batch_size, least=1)
    loss = same_loss(regularity.criterion, regularity.threshold, regularity.scores, regularity.topk, criterion)
    classifier = Classifier.of(model)
    _, x, y = check(classifier, x, y)
    geometry = checked(regularity.norm, x)
    flags = (*regularity.flags, *_compare_images(x, regularity))
    values, norms = [], []
    for part in batches(len(x), batch_size):
        value, gradient = classifier.loss_and_gradient(x[part], y[part], loss)
        values.append(value)
        norms.append(geometry.dual_norm(gradient))
    margin, grad_norm = torch.cat(values), torch.cat(norms)
    if not bool(grad_norm.isfinite().all()):
        raise BoundsError(
            f"{int((~grad_norm.isfinite()).sum())} images have a gradient that is not finite: run `gradreg diagnose`."
        )

    gap = loss.gap(margin)
    lipschitz, eps, omega = (
        part.to(gap.device, gap.dtype) for part in (regularity.lipschitz, regularity.eps, regularity.omega)
    )
    radius, censored = largest_radius(gap, grad_norm, eps, omega, envelope)
    l_bound = gap / lipschitz
    return Bound(
        # A local L was looked for within the grid, and says nothing beyond it.
        lipschitz=l_bound.clamp(max=float(eps[-1])) if regularity.per_image else l_bound,
        omega=radius,
        censored=censored,
        margin=margin,
        grad_norm=grad_norm,
        zero_gradient=grad_norm == 0,
        threat=regularity.threat,
        method=regularity.method,
        flags=flags,
        omega_half=regularity.omega_at(0.5).to(gap.device),
        omega_one=regularity.omega_at(1.0).to(gap.device),
        score=_score(regularity.crossing.to(gap.device, gap.dtype), gap, float(eps[-1]), radius),
        calibration=regularity.calibration,
    )


def _score(crossing: Tensor, gap: Tensor, end: float, omega: Tensor) -> Tensor:
    """Nothing was searched beyond the end of the grid, and a misclassified image has no bound."""
    return crossing.clamp(max=end).where(gap > 0, 0) if len(crossing) else omega


def largest_radius(
    gap: Tensor, grad_norm: Tensor, eps: Tensor, omega: Tensor, envelope: _Envelope = "step"
) -> tuple[Tensor, Tensor]:
    """The largest ε with h(ε) = gap − ω(ε) − ε‖∇ℓ‖_* ≥ 0, and whether it is censored at the end of the grid.

    Radii and ω are the same for all images, or one row per image. h falls, so there is one root. Its interval is the
    first at whose right end h is negative; within it h is linear, and the root divides it as h divides: nothing is
    divided by a gradient, which may be zero.
    """
    check_choice("envelope", envelope, get_args(_Envelope))
    images = len(check_column("gap", gap))
    for name, given in (("eps", eps), ("omega", omega)):
        if isinstance(given, Tensor):
            check_dense(name, given)
            check_width(name, given)
    grad_norm = check_column("grad_norm", grad_norm, images)
    rows = check_column("eps", eps.flatten() if isinstance(eps, Tensor) and eps.ndim == 2 else eps)
    radii = len(rows) if eps.ndim == 1 else eps.shape[1]
    for name, given in (("eps", eps), ("omega", omega)):
        if not isinstance(given, Tensor) or given.shape not in ((radii,), (images, radii)):
            raise DataError(
                f"{name} must have one entry per radius, {radii}, or a row of them per image; got {shown(given)}."
            )
    return roots(gap, grad_norm, eps.expand(images, radii), omega.expand(images, radii), envelope)


def roots(gap: Tensor, grad_norm: Tensor, eps: Tensor, omega: Tensor, envelope: _Envelope) -> tuple[Tensor, Tensor]:
    """The roots of `largest_radius`, with one row of radii and ω per image and nothing checked."""
    images, radii = eps.shape
    zero = eps.new_zeros(images, 1)
    left_end = torch.cat([zero, eps[:, :-1]], 1)
    at_left = omega if envelope == "step" else torch.cat([zero, omega[:, :-1]], 1)
    h_left = gap[:, None] - at_left - grad_norm[:, None] * left_end
    h_right = gap[:, None] - omega - grad_norm[:, None] * eps
    whole = (h_right >= 0).to(torch.int64).cumprod(1).sum(1)
    censored = whole == radii
    interval = whole.clamp(max=radii - 1)[:, None]

    def there(values: Tensor) -> Tensor:
        return values.gather(1, interval).squeeze(1)

    left, right, start = there(h_left), there(h_right), there(left_end)
    share = torch.where(left > 0, left / (left - right).where(left > 0, 1), 0)
    radius = torch.where(censored, eps[:, -1], start + share * (there(eps) - start))
    return radius.where(gap > 0, 0), censored & (gap > 0)


def _compare_images(x: Tensor, regularity: Regularity) -> tuple[str, ...]:
    """Local estimates must be of these images, global ones must not, and nor must a calibration."""
    keys = image_keys(x)
    if regularity.calibration is not None:
        known = torch.isin(keys, regularity.calibration.keys.to(keys.device))
        if float(known.double().mean()) > _SHARED:
            raise DataError(
                f"{int(known.sum())} of {len(x)} images were used to calibrate the bounds, which says nothing about "
                "them: calibrate on other images."
            )
    if len(regularity.keys) == 0:
        return ()
    if regularity.per_image:
        if not torch.equal(keys, regularity.keys):
            raise DataError(
                "A local regularity is valid only for the images it was estimated on, in their order: pass those."
            )
        return ()
    shared = torch.isin(keys, regularity.keys)
    if float(shared.double().mean()) > _SHARED:
        raise DataError(
            f"{int(shared.sum())} of {len(x)} images were used to estimate L and ω, so the bounds would look better "
            "than they are: estimate on training images."
        )
    return ("shared-images",) if bool(shared.any()) else ()
