"""The machinery of an estimate: the search around images, the fits over blocks of them, and both together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gradreg.bounds.ascent import Surroundings, climb_error, climb_gradient, random_directions
from gradreg.bounds.data import batches, check, listed
from gradreg.bounds.errors import BoundsError
from gradreg.bounds.extremes import ExtremeValue, FitMethod, block_maxima, extreme_value
from gradreg.bounds.local import Effort, explore
from gradreg.bounds.loss import Loss, Scores
from gradreg.bounds.regularity import Regularity
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import AtMost, Count, Natural, NotNegative, Range, Repeats, check_numbers
from gradreg.classifier import Classifier
from gradreg.errors import DataError
from gradreg.fingerprints import image_keys
from gradreg.norms import Threat, reach_of

Method = Literal["paper", "ascent", "local"]
Progress = Callable[[int, int], None]
"""Called with the images done and their number."""

# Radii of the default grid; for "local" they are geometric, so many to each halving.
_GRID = 40
_HALVINGS, _EACH = 9, 9


@dataclass(frozen=True)
class Search:
    """How to search around images."""

    method: Method
    samples: Count
    steps: Count | None
    restarts: Count
    rivals: Repeats
    slack: NotNegative
    lipschitz_steps: Repeats | None
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

    threat: str
    geometry: Threat
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
class Fitting:
    """How block maxima become an upper quantile."""

    block_size: AtMost
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


@dataclass(frozen=True)
class Estimation:
    """All that the estimate depends on besides the images."""

    classifier: Classifier
    geometry: Threat
    loss: Loss
    radii: Tensor
    search: Search
    fitting: Fitting
    scores: Scores
    clip: bool
    batch_size: int

    def run(self, x: Tensor, y: Tensor, progress: Progress | None) -> Regularity:
        """L and ω, of all images or around each."""
        classifier, loss, geometry, method = self.classifier, self.loss, self.geometry, self.search.method
        classes, x, y = check(classifier, x, y)
        keys = image_keys(x)
        if method != "local":
            labels = len(set(y.tolist()))
            if labels <= 2 < classes:
                raise DataError(
                    f"The calibration images have only {labels} of the model's {classes} labels, so they do not "
                    "represent the data: shuffle the loader."
                )
            block_maxima(np.zeros(len(x)), self.fitting.block_size)  # refuses too few images before the work is done
        gradient = _gradient_norms(classifier, loss, geometry, x, y, self.batch_size)
        _refuse(gradient == 0, "have a gradient of exactly zero")
        _refuse(~gradient.isfinite(), "have a gradient that is not finite")

        # In the order of the fingerprints, blocks are a random split that does not depend on the order of the data.
        order = torch.arange(len(x)) if method == "local" else keys.argsort()
        found = []
        for part in batches(len(x), self.batch_size):
            rows = order[part]
            there = rows.to(x.device)
            around = Surroundings.of(classifier, loss, geometry, x[there], y[there], self.clip)
            found.append(self.search.run(around, self.radii.to(x.device), loss.topk, keys[rows].tolist()))
            if progress is not None:
                progress(min(part.stop, len(x)), len(x))
        errors, steepest, crossing = (torch.cat(column).cpu() for column in zip(*found, strict=True))
        finite = errors.isfinite().all(1) & steepest.isfinite()
        _refuse(~finite[order.argsort()], "have losses around them that are not finite")
        common = _Common(
            geometry.name,
            geometry,
            method,
            self.radii,
            loss.name,
            loss.threshold,
            self.scores,
            loss.topk,
            self.search.seed,
            keys,
        )
        if method == "local":
            return common.regularity(steepest, errors, crossing=crossing)
        return _globally(common, self.fitting, errors, steepest, float(gradient.max()))

    def about(self, regularity: Regularity) -> str:
        """What a bound depends on besides its image: only such bounds are divided by the same scale."""
        classifier, loss = self.classifier, self.loss
        # A bare function is known by nothing but its answers.
        weights = classifier.fingerprint(torch.zeros(0)) if isinstance(classifier.model, nn.Module) else ""
        facts = self.geometry.name, loss.name, loss.threshold, loss.topk, self.scores, self.search, self.clip
        estimate = [self.radii] if regularity.per_image else [self.radii, regularity.lipschitz, regularity.omega]
        content = repr((weights, facts, [tensor.tolist() for tensor in estimate]))
        return blake2b(content.encode(), digest_size=16).hexdigest()


def _globally(common: _Common, fitting: Fitting, errors: Tensor, steepest: Tensor, steepest_clean: float) -> Regularity:
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


def grid(eps: Iterable[float] | None, geometry: Threat, like: Tensor, method: Method) -> Tensor:
    """The radii of ω: those given, or up to the threat's reach on such images."""
    if eps is None and method == "local":
        # Each image has its own distance, so the radii are equally far apart in proportion.
        return reach_of(geometry, like) * 2.0 ** -(torch.arange(_HALVINGS * _EACH, -1, -1, dtype=torch.float64) / _EACH)
    if eps is None:
        return torch.linspace(0, reach_of(geometry, like), _GRID + 1, dtype=torch.float64)[1:]
    return _double(list(check_numbers("eps", eps, ascending=True, above=0)))
