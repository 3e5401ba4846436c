"""Estimating L and ω(ε): the paper's recipe, and two that hold better.

Random perturbations do not find the worst one, so the paper's ω is too small, and its bound too large on many images
(docs/bounds.md has figures). "ascent" searches instead of drawing. "local" searches around each evaluated image, as
`gradreg.bounds.local` says.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from gradreg.bounds.ascent import Surroundings, climb_error, climb_gradient, random_directions
from gradreg.bounds.data import Data, batches, check, gather, listed
from gradreg.bounds.errors import BoundsError
from gradreg.bounds.extremes import ExtremeValue, FitMethod, block_maxima, extreme_value
from gradreg.bounds.local import Effort, explore
from gradreg.bounds.loss import CriterionName, Loss, Scores, loss_of
from gradreg.bounds.regularity import Regularity
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, Natural, NotNegative, Range, check_integer, check_numbers, check_switch
from gradreg.classifier import Classifier
from gradreg.errors import DataError
from gradreg.fingerprints import image_keys
from gradreg.norms import Threat, ThreatName
from gradreg.norms import threat as threat_named
from gradreg.penalty.passes import Criterion, Model

Method = Literal["paper", "ascent", "local"]

# Radii of the default grid; for "local" they are geometric, so many to each halving.
_GRID = 40
_HALVINGS, _EACH = 9, 9


def estimate_regularity(
    model: Model,
    data: Data,
    threat: ThreatName | Threat = "l2",
    *,
    method: Method = "ascent",
    eps: Iterable[float] | None = None,
    criterion: CriterionName | Criterion = "margin",
    threshold: float | None = None,
    scores: Scores = "probabilities",
    topk: int = 1,
    block_size: int = 32,
    p: float = 0.001,
    fit: FitMethod | None = None,
    samples: int = 10,
    steps: int | None = None,
    restarts: int = 1,
    rivals: int = 3,
    slack: float = 0.1,
    lipschitz_steps: int | None = None,
    clip: bool = True,
    limit: int | None = 1600,
    batch_size: int = 256,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Regularity:
    """L and ω on the grid `eps`, from the first `limit` images of `data`, which must not be those evaluated later.

    "paper": gradients at the images and `samples` random v in each ball; the maxima of blocks of `block_size` images
    are fitted by a GEV, and the value exceeded with probability `p` is taken. The fit is by maximum likelihood.
    "ascent": the same with the worst v found by projected ascent, `steps` (2) at each radius from each of `restarts`
    starts, and with the steepest gradient around each image. The fit is by L-moments.
    "local": a search alone, for each image by itself: `data` are then the very images to be bounded, all of them.
    Since each image counts here, and not the worst of many, it goes as an attack does: `steps` (10) towards each of the
    `rivals` nearest classes. It still is no proof: what it finds within (1 + slack)ε is taken for ω(ε).

    A fitted ω is cut at ε(L + max‖∇ℓ‖_*), which bounds it, before it is made monotone: one heavy-tailed fit at one
    radius would otherwise spoil all larger ones. `clip` keeps perturbed images in the pixel box, as attacks do.
    `progress` is called with the images done and their number.

    Prop. 2.2 holds for any loss ℓ, one value per image of (logits, labels), with a `threshold` ℓ₀ below which images
    are always classified correctly. Default: the margin at 0; "cross_entropy" has log 2.
    """
    search = _Search(method, samples, steps, restarts, rivals, slack, lipschitz_steps, seed)
    fitting = _Fitting(block_size, p, fit or ("mle" if method == "paper" else "lmoments"), seed)
    limit = None if limit is None else check_integer("limit", limit, least=1)
    batch_size, seed = check_integer("batch_size", batch_size, least=1), search.seed
    geometry, classifier, loss = threat_named(threat), Classifier.of(model), loss_of(criterion, threshold, scores, topk)
    radii, clip = _grid(eps, geometry, method), check_switch("clip", clip)
    x, y = gather(data, None if method == "local" else limit, classifier.device)
    classes, y = check(classifier, x, y)
    keys = image_keys(x)
    if method != "local":
        labels = len(set(y.tolist()))
        if labels <= 2 < classes:
            raise DataError(
                f"The calibration images have only {labels} of the model's {classes} labels, so they do not represent "
                "the data: shuffle the loader."
            )
        block_maxima(np.zeros(len(x)), fitting.block_size)  # refuses too few images before the work is done
    gradient = _gradient_norms(classifier, loss, geometry, x, y, batch_size)
    _refuse(gradient == 0, "have a gradient of exactly zero")
    _refuse(~gradient.isfinite(), "have a gradient that is not finite")

    # In the order of the fingerprints, blocks are a random split that does not depend on the order of the data.
    order = torch.arange(len(x)) if method == "local" else keys.argsort()
    found = []
    for part in batches(len(x), batch_size):
        rows = order[part]
        there = rows.to(x.device)
        around = Surroundings.of(classifier, loss, geometry, x[there], y[there], clip)
        found.append(search.run(around, radii.to(x.device), topk, keys[rows].tolist()))
        if progress is not None:
            progress(min(part.stop, len(x)), len(x))
    errors, steepest, crossing = (torch.cat(column).cpu() for column in zip(*found, strict=True))
    finite = errors.isfinite().all(1) & steepest.isfinite()
    _refuse(~finite[order.argsort()], "have losses around them that are not finite")
    common = _Common(geometry.name, method, radii, loss.name, loss.threshold, scores, topk, seed, keys)
    if method == "local":
        return common.regularity(steepest, errors, crossing=crossing)
    return _globally(common, fitting, errors, steepest, float(gradient.max()))


@dataclass(frozen=True)
class _Search:
    """How to search around images."""

    method: Method
    samples: Count
    steps: Count | None
    restarts: Count
    rivals: Natural
    slack: NotNegative
    lipschitz_steps: Natural | None
    seed: Natural

    def __post_init__(self) -> None:
        check_fields(self)

    def run(self, around: Surroundings, radii: Tensor, topk: int, keys: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Per image, the largest first-order error within each radius, the largest ‖∇ℓ‖_*, and the crossing."""
        if self.method == "local":
            effort = Effort(self.steps or 10, self.restarts, self.rivals, _or(self.lipschitz_steps, 4))
            found = explore(around, radii * (1 + self.slack), topk, effort, keys, self.seed)
            return found.errors, found.steepest, found.crossing
        nowhere = torch.full_like(around.value, torch.inf)
        if self.method == "paper":
            return self._draw(around, radii, keys), around.threat.dual_norm(around.gradient), nowhere
        errors, passed = climb_error(around, radii, self.steps or 2, self.restarts, keys, self.seed)
        steepest = climb_gradient(around, float(radii[-1]), _or(self.lipschitz_steps, 8), keys, self.seed)
        return errors, passed.maximum(steepest), nowhere

    def _draw(self, around: Surroundings, radii: Tensor, keys: list[int]) -> Tensor:
        errors = torch.zeros(len(keys), len(radii), dtype=around.value.dtype, device=around.x.device)
        for sample in range(self.samples):
            direction = random_directions(around, keys, self.seed, f"ball/{sample}")
            for column, radius in enumerate(radii):
                error = around.error(around.inside(direction * radius))
                errors[:, column] = errors[:, column].maximum(error)
        return errors.cummax(1).values


@dataclass(frozen=True)
class _Common:
    """What every regularity records about its estimation."""

    threat: ThreatName
    method: Method
    eps: Tensor
    criterion: str
    threshold: float
    scores: Scores
    topk: int
    seed: int
    keys: Tensor

    def regularity(self, lipschitz: Tensor, omega: Tensor, **more: Any) -> Regularity:
        return Regularity(lipschitz=lipschitz, omega=omega, **vars(self), **more)


@dataclass(frozen=True)
class _Fitting:
    """How block maxima become an upper quantile."""

    block_size: Count
    p: Annotated[float, Range(above=0, below=1, usual="the probability of exceeding the estimate; 0.001 is usual")]
    method: FitMethod
    seed: Natural

    def __post_init__(self) -> None:
        check_fields(self)

    def fit(self, values: Tensor) -> ExtremeValue:
        """The quantile of block maxima of one value per image, at least the largest of all values."""
        numbers = values.double().numpy()
        found = extreme_value(
            block_maxima(numbers, self.block_size), self.block_size, p=self.p, method=self.method, seed=self.seed
        )
        # An image left over from the last block may hold the largest.
        largest = float(numbers.max())
        return replace(found, value=max(found.value, largest), upper=max(found.upper, largest), largest=largest)


def _globally(
    common: _Common, fitting: _Fitting, errors: Tensor, steepest: Tensor, steepest_clean: float
) -> Regularity:
    """One L and one ω for all images, by extreme values over blocks of them."""
    lipschitz = fitting.fit(steepest)
    omega = [fitting.fit(column) for column in errors.T]
    largest = np.array([one.largest for one in omega])
    cap = common.eps.numpy() * (lipschitz.value + steepest_clean)

    def curve(fitted: list[float]) -> Tensor:
        # Errors that were seen stay, whatever the cap says: where they exceed it, L was estimated too low.
        return torch.from_numpy(np.maximum.accumulate(np.maximum(np.minimum(fitted, cap), largest)))

    named = [("lipschitz", lipschitz), *((f"omega[{e:g}]", o) for e, o in zip(common.eps.tolist(), omega, strict=True))]
    return common.regularity(
        _double(lipschitz.value),
        curve([one.value for one in omega]),
        p=fitting.p,
        block_size=fitting.block_size,
        blocks=lipschitz.blocks,
        flags=tuple(f"{name}:{flag}" for name, found in named for flag in found.flags),
        shape=_double([found.shape for _, found in named]),
        lipschitz_upper=_double(lipschitz.upper),
        omega_upper=curve([one.upper for one in omega]),
    )


def _or(given: int | None, default: int) -> int:
    return default if given is None else given


def _double(values: float | list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _gradient_norms(
    classifier: Classifier, loss: Loss, geometry: Threat, x: Tensor, y: Tensor, batch_size: int
) -> Tensor:
    gradients = (classifier.loss_and_gradient(x[part], y[part], loss)[1] for part in batches(len(x), batch_size))
    return torch.cat([geometry.dual_norm(gradient) for gradient in gradients])


def _refuse(wrong: Tensor, what: str) -> None:
    """The staircase argument against CLEVER (Goodfellow 2018): quantised input has gradients of 0 and no robustness."""
    if bool(wrong.any()):
        raise BoundsError(
            f"{int(wrong.sum())} of {len(wrong)} calibration images {what}, so gradients cannot bound the loss "
            f"({listed(wrong)}). The model may quantise its input or saturate; run `gradreg diagnose` to see which."
        )


def _grid(eps: Iterable[float] | None, geometry: Threat, method: Method) -> Tensor:
    if eps is None and method == "local":
        # Each image has its own distance, so the radii are equally far apart in proportion.
        return geometry.reach * 2.0 ** -(torch.arange(_HALVINGS * _EACH, -1, -1, dtype=torch.float64) / _EACH)
    if eps is None:
        return torch.linspace(0, geometry.reach, _GRID + 1, dtype=torch.float64)[1:]
    return _double(list(check_numbers("eps", eps, ascending=True, above=0)))
