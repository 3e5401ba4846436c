"""Calling a model more than once in one step without the calls disturbing each other.

A finite difference needs ℓ(x) and ℓ(x + hd) of *the same* function: same dropout masks, same arithmetic, and batch
normalisation in the mode that the caller chose. Whatever a call switches is switched back after it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradreg.calling.answers import Model as Model
from gradreg.calling.answers import Output, answer, check_logits, required
from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy
from gradreg.precision import at_least_single

BatchNormMode = Literal["train", "frozen"]
AutocastMode = Literal["off", "keep"]


class Criterion(Protocol):
    """A loss with one value per image, such as `torch.nn.CrossEntropyLoss(reduction="none")`."""

    def __call__(self, logits: Tensor, y: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class Pass:
    """A recorded evaluation: per-image losses with their graph, the input they depend on, and how to repeat it."""

    x: Tensor
    y: Tensor
    losses: Tensor
    logits: Tensor
    random: "RandomState"

    def input_gradient(self, *, differentiable: bool, retain: bool = True) -> Tensor:
        """∇ℓ(x) of each image's own loss, of the sum and not the mean: no 1/m. Weights get no gradient."""
        total = self.losses.sum()
        gradient = None
        with as_recorded(total):
            if differentiable and total.requires_grad:
                (gradient,) = torch.autograd.grad(total, self.x, create_graph=True, allow_unused=True)
            elif total.requires_grad:
                # Not autograd.grad, which torch's FLOP counter and other module trackers cannot follow to a leaf.
                torch.autograd.backward(total, inputs=[self.x], retain_graph=retain)
                gradient, self.x.grad = self.x.grad, None
        return required(gradient)

    def input_gradient_and_losses(self, calls: "Calls") -> tuple[Tensor, Tensor]:
        """∇ℓ(x), and the losses with a graph for the weights' gradients.

        A compiled model whose first backward kept no graph gives its memory away ever after ("donated buffers") and
        refuses to be differentiated twice: the losses are then computed once more.
        """
        try:
            return self.input_gradient(differentiable=False), self.losses
        except RuntimeError as error:
            if "donated buffer" not in str(error):
                raise
        return self.input_gradient(differentiable=False, retain=False), calls.repeat(self, self.x.detach())


def as_recorded(losses: Tensor) -> AbstractContextManager[object]:
    """Differentiate in the precision of the forward: autocast would round a float32 pass's gradients to half of it."""
    kind = losses.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


class Calls:
    """A model and a criterion as one per-image loss that can be evaluated again under the same conditions."""

    def __init__(
        self,
        model: Model,
        criterion: Criterion,
        bn: BatchNormMode,
        autocast: AutocastMode,
        output: Output | None = None,
    ) -> None:
        self.model, self.criterion, self.autocast, self.output = model, criterion, autocast, output
        self.batch_norms = _using_batch_statistics(model)
        self.frozen = bn == "frozen"

    @property
    def images_interact(self) -> bool:
        """Whether batch statistics are in use, so that a part of the batch alone would give other losses."""
        return bool(self.batch_norms) and not self.frozen

    def images(self, x: Tensor) -> Tensor:
        """The images without a graph, and in full precision where autocast is switched off."""
        x = x.detach()
        # A copy, since a model that writes into its input must not write into the caller's images.
        return x.to(at_least_single(x.dtype) if self._overrules_autocast(x) else x.dtype, copy=True)

    def evaluate(self, x: Tensor, y: Tensor, *, track: bool) -> tuple[Tensor, Tensor]:
        """Losses and logits; running statistics are updated if `track`."""
        with ExitStack() as switched:
            if self.frozen:
                switched.enter_context(_set(self.batch_norms, "training", False))
            elif not track:
                # Momentum 0 would do too, but 0 times an infinite batch statistic is a NaN that stays.
                switched.enter_context(_set(self.batch_norms, "track_running_stats", False))
            if self._overrules_autocast(x):
                switched.enter_context(torch.autocast(x.device.type, enabled=False))
            logits = answer(self.model, x, self.output)
            if _needs_classes(self.criterion):
                check_logits(logits, len(x))
            losses = self.criterion(logits, y)
        if losses.shape != (len(x),):
            raise ConfigError(
                f"criterion must return one loss per image, shape ({len(x)},); got shape {tuple(losses.shape)}. Pass a "
                "criterion with reduction='none'."
            )
        return losses, logits

    def record(self, x: Tensor, y: Tensor, *, track: bool) -> Pass:
        """Evaluate with a graph back to the input."""
        x = x.detach().requires_grad_()
        random = RandomState.now(x.device)
        losses, logits = self.evaluate(x, y, track=track)
        return Pass(x, y, losses, logits, random)

    def _overrules_autocast(self, x: Tensor) -> bool:
        return self.autocast == "off" and torch.is_autocast_enabled(x.device.type)

    def repeat(self, recorded: Pass, x: Tensor) -> Tensor:
        """The losses with the images replaced by `x`: same labels and dropout masks, no running statistics updated."""
        with recorded.random.replayed():
            return self.evaluate(x, recorded.y, track=False)[0]


@dataclass(frozen=True)
class RandomState:
    """The global random streams that a model on `device` can draw from, as they were at one moment."""

    device: torch.device
    host: Tensor
    accelerator: Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> "RandomState":
        """Their current states."""
        on_host = device.type in ("cpu", "meta")
        state = None if on_host else torch.get_device_module(device).get_rng_state(device)
        return cls(device, torch.get_rng_state(), state)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Repeat the draws made since that moment; afterwards the streams continue where they were."""
        resume = RandomState.now(self.device)
        self._restore()
        try:
            yield
        finally:
            resume._restore()

    def _restore(self) -> None:
        torch.set_rng_state(self.host)
        if self.accelerator is not None:
            torch.get_device_module(self.device).set_rng_state(self.accelerator, self.device)


def check_batch_norm_mode(model: Model, mode: BatchNormMode) -> None:
    """Raise an error for an unknown mode, or one that the model does not allow."""
    if mode not in ("train", "frozen"):
        raise ConfigError(f"bn must be 'train' (batch statistics) or 'frozen' (running statistics); got {mode!r}.")
    if mode == "frozen" and not isinstance(model, nn.Module):
        raise ConfigError(
            "bn='frozen' switches the model's BatchNorm layers, which a plain function does not expose: pass the "
            "nn.Module itself."
        )


def _needs_classes(criterion: Criterion) -> bool:
    """Cross entropy of a single class is 0 whatever the logit; a criterion of the user's own may want other shapes."""
    return isinstance(criterion, nn.CrossEntropyLoss) or getattr(criterion, "func", criterion) is cross_entropy


def _using_batch_statistics(model: Model) -> list[_BatchNorm]:
    if not isinstance(model, nn.Module):
        return []
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.training]


@contextmanager
def _set(layers: list[_BatchNorm], attribute: str, value: bool) -> Iterator[None]:
    before = [getattr(layer, attribute) for layer in layers]
    for layer in layers:
        setattr(layer, attribute, value)
    try:
        yield
    finally:
        for layer, old in zip(layers, before, strict=True):
            setattr(layer, attribute, old)
