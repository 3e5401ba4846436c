"""Any model behind one face: pixels of a box in, checked logits out, and a count of what was asked of each image."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor, nn

from gradreg.errors import ConfigError, DataError, ModelError
from gradreg.fingerprints import model_key
from gradreg.penalty.passes import Criterion, Model
from gradreg.precision import at_least_single

# How far from 1, in units of rounding, a row may sum and still be taken for probabilities.
_ROUNDING = 32


@dataclass(frozen=True)
class Queries:
    """How many forwards and backwards each image of an examination has cost."""

    forwards: Tensor
    backwards: Tensor

    @classmethod
    def none(cls, images: int, device: torch.device) -> "Queries":
        """A count that starts at zero."""
        return cls(*torch.zeros(2, images, dtype=torch.int64, device=device).unbind())


class Classifier(nn.Module):
    """A model that takes pixels of `box`; `mean` and `std` are applied inside it, so distances stay in pixel units.

    The model is used where and as it is: never moved, cast or put in another mode. Pixels are cast to its dtype.
    """

    def __init__(
        self,
        model: Model,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        box: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        super().__init__()
        if not callable(model):
            raise ModelError(f"A {type(model).__name__} is not a model: pass an nn.Module or a function to logits.")
        if (mean is None) != (std is None):
            raise ConfigError("Normalisation needs both mean= and std=, or neither.")
        if not box[0] < box[1]:
            raise ConfigError(f"box is {box}, but it is the smallest and the largest pixel value, as (0, 1).")
        self.model = model
        self.box = box
        weight = _first_float(model)
        self._device = weight.device if weight is not None else None
        self._dtype = weight.dtype if weight is not None else None
        self._queries: Queries | None = None
        self._mean, self._std = _channels(mean, self._device), _channels(std, self._device)

    @classmethod
    def of(cls, model: Model) -> "Classifier":
        """`model` as a classifier of pixels in [0, 1]; one that is a classifier already is returned as it is."""
        return model if isinstance(model, cls) else cls(model)

    def forward(self, x: Tensor, images: Tensor | None = None) -> Tensor:
        """Logits. `images` says which images of a counted examination the rows are."""
        if self._device is not None and x.device != self._device:
            raise ModelError(f"The images are on {x.device} and the model on {self._device}: move one of them.")
        if self._queries is not None:
            _add(self._queries.forwards, images, len(x))
        logits = self.model(self.normalise(x))
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x) or logits.shape[1] < 2:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModelError(
                f"The model returned {shape} for {len(x)} images, but a row of two or more logits an image is needed."
            )
        return logits

    def normalise(self, x: Tensor) -> Tensor:
        """Pixels as the model inside takes them: its precision, minus the mean, over the deviation."""
        x = x if self._dtype is None else x.to(self._dtype)
        return x if self._mean is None or self._std is None else (x - self._mean) / self._std

    def loss_and_gradient(
        self, x: Tensor, y: Tensor, loss: Criterion, images: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Each image's loss, detached, and the gradient of its own loss; no weight gets a gradient."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            losses = loss(self(leaf, images), y)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        if self._queries is not None:
            _add(self._queries.backwards, images, len(x))
        return losses.detach(), gradient

    @contextmanager
    def counted(self, images: int) -> Iterator[Queries]:
        """Count the forwards and backwards of an examination of that many images."""
        outer, self._queries = self._queries, Queries.none(images, self._device or torch.device("cpu"))
        try:
            yield self._queries
        finally:
            self._queries = outer

    def check(self, x: Tensor, y: Tensor) -> Tensor:
        """Refuse what would give silently wrong numbers, before an examination starts; the clean logits are returned.

        One uncounted forward. Refused: a model in train mode, pixels outside the box, labels that are no class,
        logits that are not finite, probabilities for logits.
        """
        self._check_mode()
        self._check_images(x, y)
        outer, self._queries = self._queries, None
        try:
            with torch.no_grad():
                logits: Tensor = self(x)
        finally:
            self._queries = outer
        _check_logits(logits)
        classes = logits.shape[1]
        if int(y.min()) < 0 or int(y.max()) >= classes:
            raise DataError(
                f"Labels run from {int(y.min())} to {int(y.max())}, but the model has classes 0 to {classes - 1}."
            )
        return logits

    def fingerprint(self, x: Tensor) -> str:
        """What its answers depend on: box, normalisation, layers, weights; of a bare function, its answers to `x`."""
        around = repr((self.box, self._mean, self._std))
        if isinstance(self.model, nn.Module):
            return model_key(self.model, around)
        with torch.no_grad():
            answers = repr(self(x).argmax(1).tolist())
        return blake2b((around + answers).encode(), digest_size=16).hexdigest()

    def _check_mode(self) -> None:
        modules = self.model.modules() if isinstance(self.model, nn.Module) else ()
        training = next((type(module).__name__ for module in modules if module.training), None)
        if training is not None:
            raise ModelError(
                f"The model is in train mode ({training}), where dropout and batch statistics change its answers: "
                "call model.eval() first."
            )

    def _check_images(self, x: Tensor, y: Tensor) -> None:
        if x.ndim < 2 or not x.is_floating_point() or len(x) == 0:
            raise DataError(f"x is a {x.dtype} tensor of shape {tuple(x.shape)}, but it is a batch of float images.")
        if y.shape != (len(x),) or y.is_floating_point():
            raise DataError(f"y is a {y.dtype} tensor of shape {tuple(y.shape)}, but it is {len(x)} integer labels.")
        low, high = self.box
        smallest, largest = float(x.min()), float(x.max())
        if not (low <= smallest and largest <= high):
            raise DataError(
                f"Pixels run from {smallest:.3g} to {largest:.3g}, outside the box {low:g} to {high:g}: pass "
                "unnormalised images and put the normalisation inside, Classifier(model, mean=…, std=…)."
            )


def _check_logits(logits: Tensor) -> None:
    finite = logits.isfinite().all(1)
    if not bool(finite.all()):
        first = int((~finite).nonzero()[0])
        raise ModelError(f"The model's logits are not finite for {int((~finite).sum())} images, the first is {first}.")
    scores = logits.to(at_least_single(logits.dtype))
    looks_like_one = (scores >= 0).all(1) & ((scores.sum(1) - 1).abs() < _ROUNDING * torch.finfo(logits.dtype).eps)
    if bool(looks_like_one.all()):
        raise ModelError(
            "The model returns probabilities, whose gradients vanish where it is sure, so attacks would fail and make "
            "it look robust: return the logits, without the softmax at the end."
        )


def _first_float(model: Model) -> Tensor | None:
    if not isinstance(model, nn.Module):
        return None
    tensors = (tensor for group in (model.parameters(), model.buffers()) for tensor in group)
    return next((tensor for tensor in tensors if tensor.is_floating_point()), None)


def _channels(values: Sequence[float] | None, device: torch.device | None) -> Tensor | None:
    return None if values is None else torch.tensor(values, device=device).view(1, -1, 1, 1)


def _add(counts: Tensor, images: Tensor | None, rows: int) -> None:
    if images is None:
        if rows != len(counts):
            raise ConfigError(f"{rows} rows were asked of an examination of {len(counts)} images: say which they are.")
        counts += 1
    else:
        # An image may stand in several rows of one call, and each row is work.
        counts.index_add_(0, images, torch.ones_like(images, dtype=counts.dtype))
