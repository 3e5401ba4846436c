"""Any model behind one interface: pixels in, checked logits out, with forwards and backwards counted per image."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor, nn

from gradreg.calling.answers import Model, Output, answer, check_logits, check_values, leaf, required
from gradreg.calling.arithmetic import outside_autocast
from gradreg.calling.asking import (
    check_settled,
    check_weights,
    first_float,
    left_as_found,
    marks,
    named,
    precision,
    unknown,
)
from gradreg.calling.contents import in_train_mode, is_said_by_weights
from gradreg.calling.recomputing import differentiating
from gradreg.calling.repeats import check_again, check_alone
from gradreg.checks.box import check_in_box
from gradreg.checks.calls import validated
from gradreg.checks.fields import conform
from gradreg.checks.scalars import check_count, check_numbers, check_switch
from gradreg.checks.tensors import check_batch, check_classes, check_device, check_labels, on_host
from gradreg.errors import ConfigError, DataError, ModelError
from gradreg.fingerprints import answers_key, code_key, joint_key, model_key
from gradreg.looks import fetched
from gradreg.penalty.passes import Criterion
from gradreg.precision import at_least_single
from gradreg.queries import Queries

# What weights do not say is known by the logits for this many images.
_KNOWN_BY = 4


@dataclass(frozen=True)
class _Call:
    """What a classifier is asked for at the moment: where its queries are counted, and in which low precision."""

    queries: Queries | None = None
    low: torch.dtype | None = None


# By classifier, in each thread.
_CALLS: ContextVar[Mapping[int, _Call]] = ContextVar("_CALLS", default=MappingProxyType({}))


@dataclass(frozen=True)
class Checked:
    """Clean logits that were checked, and what they were checked on: copies on the host."""

    logits: Tensor
    pixels: Tensor
    labels: Tensor
    said: Tensor
    """The logits again, on the host."""
    low: Tensor | None
    """The logits in low precision, on the host, if they were asked for."""


class Classifier(nn.Module):
    """A model that takes pixels of `box`; `mean` and `std` are applied inside it, so distances stay in pixel units.

    The model is never moved, cast or put in another mode, and in eval mode the state that a forward moves is put back.
    Pixels are cast to its dtype, and autocast around a call is switched off for it. `output` is a function from what
    the model returns to logits; a tensor, an object with `.logits` and a mapping with "logits" need none.
    """

    _mean: Tensor | None
    _std: Tensor | None
    _cast: torch.dtype | None
    """What pixels are cast to for weights of several dtypes, where the model does not do that itself."""

    def __init__(
        self,
        model: Model,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        box: tuple[float, float] = (0.0, 1.0),
        output: Output | None = None,
    ) -> None:
        super().__init__()
        if not callable(model):
            raise ModelError(
                f"model must be an nn.Module or a function from images to logits; got {type(model).__name__}."
            )
        if (mean is None) != (std is None):
            raise ConfigError("Pass both mean= and std= for normalisation, or neither.")
        box = conform("box", box, tuple[float, float])
        if not box[0] < box[1]:
            raise ConfigError(f"box must be the smallest and the largest pixel value, such as (0, 1); got {box}.")
        if output is not None and not callable(output):
            raise ConfigError(
                f"output must be a function from what the model returns to logits; got {type(output).__name__}."
            )
        self.model, self.box, self.output = model, box, output
        self._known, self._cast = unknown(), None
        # Buffers, so that `to`, `double` and `half` take them along; not persistent, so that they are in no state_dict.
        self.register_buffer("_mean", _channels("mean", mean, self.device), persistent=False)
        self.register_buffer("_std", _channels("std", std, self.device, above=0), persistent=False)

    @classmethod
    def of(cls, model: Model) -> "Classifier":
        """`model` as a classifier of pixels in [0, 1]; a Classifier is returned unchanged."""
        return model if isinstance(model, cls) else cls(model)

    @property
    def device(self) -> torch.device | None:
        """Where the model is; None for a function, which does not say."""
        weight = first_float(self.model)
        return None if weight is None else weight.device

    @property
    def _call(self) -> "_Call":
        return _CALLS.get().get(id(self), _Call())

    @contextmanager
    def _within(self, call: "_Call") -> Iterator[None]:
        """Ask for `call` in this thread: another one may ask the same classifier for something else."""
        outer = _CALLS.get()
        _CALLS.set({**outer, id(self): call})
        try:
            yield
        finally:
            _CALLS.set(outer)

    def forward(self, x: Tensor, images: Tensor | None = None) -> Tensor:
        """Logits. While queries are counted, `images` says which image each row is."""
        self._check_place(x)
        call = self._call
        if call.queries is not None:
            call.queries.count_forward(images, len(x))
        with named(x), left_as_found(self.model, x.device, self._known), outside_autocast(x.device.type):
            if call.low is None:
                return check_logits(self._answer(x), len(x))
            with torch.autocast(x.device.type, call.low):
                return check_logits(self._answer(x), len(x)).float()

    def _answer(self, x: Tensor) -> Tensor:
        try:
            return answer(self.model, self.normalise(x), self.output)
        except RuntimeError:
            weight = first_float(self.model)
            if weight is None or precision(self.model) is not None or self._cast is not None:
                raise
            self._cast = weight.dtype
        try:
            return answer(self.model, self.normalise(x), self.output)
        except RuntimeError:
            self._cast = None
            raise

    def normalise(self, x: Tensor) -> Tensor:
        """Pixels in the model's precision, minus the mean, over the standard deviation."""
        kind = precision(self.model) or self._cast
        pixels = x if kind is None else x.to(kind)
        if self._mean is None or self._std is None:
            return pixels
        # The model may have been moved or cast without its classifier.
        return (pixels - self._mean.to(pixels)) / self._std.to(pixels)

    def loss_and_gradient(
        self, x: Tensor, y: Tensor, loss: Criterion, images: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The detached loss per image, and the gradient of each image's own loss; no weight gets a gradient."""
        with torch.enable_grad():
            points = leaf(x)
            losses = loss(self(points, images), y)
            total = losses.sum()
            # Checkpointed parts run again, and move what they moved.
            with (
                named(x),
                left_as_found(self.model, x.device, self._known),
                outside_autocast(x.device.type),
                differentiating(),
            ):
                if total.requires_grad:
                    # Not autograd.grad, which torch's FLOP counter and other module trackers cannot follow to a leaf.
                    torch.autograd.backward(total, inputs=[points])
        gradient = points.grad
        if (queries := self._call.queries) is not None:
            queries.count_backward(images, len(x))
        return losses.detach(), required(gradient)

    @validated
    @contextmanager
    def counted(self, images: int, device: torch.device | None = None) -> Iterator[Queries]:
        """Count the forwards and backwards spent on each of that many images; a function does not say its `device`."""
        images = check_count("images", images)
        queries = Queries.none(images, device or self.device or torch.device("cpu"))
        with self._within(replace(self._call, queries=queries)):
            yield queries

    @contextmanager
    def computing(self, low: torch.dtype | None) -> Iterator[None]:
        """Forwards in here run in low precision, by autocast, with logits in single; None: as they always do."""
        with self._within(replace(self._call, low=low)):
            yield

    def check_single(self) -> None:
        """Refuse a model that autocast would leave alone: it changes single precision only."""
        weight = first_float(self.model)
        if weight is not None and weight.dtype != torch.float32:
            raise ConfigError(f"A search in low precision needs a model in torch.float32; got {weight.dtype}.")

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Forwards and backwards in here are not counted."""
        with self._within(replace(self._call, queries=None)):
            yield

    def check(self, x: Tensor, y: Tensor, *, alone: bool = True) -> Tensor:
        """Raise an error for what would give silently wrong numbers; return the clean logits, by one uncounted forward.

        Checked are train mode, pixels outside the box, labels outside the classes, logits that are not finite,
        probabilities in place of logits and, if `alone`, answers that change when asked again or in another batch.
        """
        check_switch("alone", alone)
        self._check_call(x, y)
        self.check_pixels(x)
        logits = self._ask_settled(x)
        self._check_answer(y, logits)
        if alone:
            check_alone(self.ask, x, self.box, logits)
        return logits

    def check_at_once(
        self, x: Tensor, y: Tensor, again: Callable[[Tensor], Tensor], low: torch.dtype | None = None
    ) -> Checked:
        """Check what `check` does by one look at the device; `again` asks the model once more about the images."""
        self._check_call(x, y)
        if on_host(x):
            self.check_pixels(x)  # before the model sees them, since that costs nothing
        logits = self._ask_settled(x)
        with self.computing(low):
            also = [] if low is None else [self.ask(x)]
        pixels, labels, said, repeated, *rounded = fetched(x, y, logits, again(x), *also)
        self.check_pixels(pixels)
        self._check_answer(labels, said)
        check_again(self.ask, x, self.box, said, repeated)
        return Checked(logits, pixels, labels, said, rounded[0] if rounded else None)

    def _check_call(self, x: Tensor, y: Tensor) -> None:
        """Refuse what shows without the values of a tensor."""
        self._check_mode()
        check_weights(self.model)
        self._check_images(x, y)

    def _ask_settled(self, x: Tensor) -> Tensor:
        before = marks(self.model)
        logits = self.ask(x)
        if marks(self.model) != before:
            check_settled(self.model, lambda: self.ask(x))
        return logits

    def _check_answer(self, y: Tensor, logits: Tensor) -> None:
        check_values(logits)
        check_classes(y, logits.shape[1])

    def ask(self, x: Tensor) -> Tensor:
        """Logits without a gradient, by a forward that is not counted."""
        with torch.no_grad(), self.uncounted():
            logits: Tensor = self(x)
        return logits.detach()  # a model may return what it kept of an earlier call

    def fingerprint(self, x: Tensor) -> str:
        """What the logits depend on: box, normalisation, layers, weights, `output`; and answers to the first images.

        Answers stand behind a space, where weights do not say all: code of a user's, hooks, functions.
        """
        around = repr((self.box, *(None if part is None else part.float().cpu() for part in (self._mean, self._std))))
        around += "" if self.output is None else code_key(self.output)
        weights, said = joint_key(around.encode()), False
        if isinstance(self.model, nn.Module):
            weights, said = model_key(self.model, around), self.output is None and is_said_by_weights(self.model)
        return weights if said or not len(x) else f"{weights} {self._answers(x)}"

    def _answers(self, x: Tensor) -> str:
        """What tells models of the same weights apart; empty if the model is random."""
        self._check_mode()
        check_weights(self.model)
        self.check_pixels(x)
        once, again = (answers_key(self.ask(x[:_KNOWN_BY])) for _ in range(2))
        return once if once == again else ""

    def _check_mode(self) -> None:
        training = next((type(module).__name__ for module in in_train_mode(self.model)), None)
        if training is not None:
            raise ModelError(
                f"The model is in train mode ({training}), where dropout and batch statistics change its logits: "
                "call model.eval() first."
            )

    def _check_place(self, x: Tensor) -> None:
        device = self.device
        if device is not None and x.device != device:
            raise ModelError(f"x must be on the model's device, {device}; got {x.device}. Move one of them.")

    def _check_images(self, x: Tensor, y: Tensor) -> None:
        self._check_place(check_batch(x))
        check_labels(y, len(x))
        check_device("y", y, x)
        statistics = [part.shape[1] for part in (self._mean, self._std) if part is not None]
        if statistics and (x.ndim != 4 or any(channels not in (1, x.shape[1]) for channels in statistics)):
            raise DataError(f"x must have {max(statistics)} channels, like mean and std; got shape {tuple(x.shape)}.")

    def check_pixels(self, x: Tensor, name: str = "x") -> None:
        """Refuse pixels outside of the box, NaN included."""
        check_in_box(x, self.box, name)


def _channels(
    name: str, values: Sequence[float] | None, device: torch.device | None, above: float | None = None
) -> Tensor | None:
    """One number per channel, or one for all, shaped to broadcast over images."""
    if values is None:
        return None
    kind = at_least_single(torch.get_default_dtype())
    numbers = check_numbers(name, values, above=above)
    return torch.tensor(numbers, dtype=kind, device=device or "cpu").view(1, -1, 1, 1)
