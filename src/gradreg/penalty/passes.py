"""Calling a model more than once in one step without the calls disturbing each other.

A finite difference needs ℓ(x) and ℓ(x + hd) of *the same* function: same dropout masks, same arithmetic, and batch
normalisation in the mode that the caller chose. Whatever a call switches is switched back after it.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradreg.calling.answers import Model as Model
from gradreg.calling.answers import Output, answer, check_logits, required
from gradreg.calling.arithmetic import full_precision
from gradreg.calling.contents import contents, is_compiled
from gradreg.calling.known import known
from gradreg.calling.state import Moment, State
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
    begun: Moment

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
        modules, generators = contents(model)
        self.batch_norms = [layer for layer in modules if isinstance(layer, _BatchNorm) and layer.training]
        self.frozen = bn == "frozen"
        self.compiled = is_compiled(model, modules)
        self.known = known(model, modules, bn, autocast)
        self.state = State(modules, generators, self.known)

    @property
    def images_interact(self) -> bool:
        """Whether batch statistics are in use, so that a part of the batch alone would give other losses."""
        return bool(self.batch_norms) and not self.frozen

    def images(self, x: Tensor) -> Tensor:
        """The images without a graph, and in full precision where autocast is switched off."""
        x = x.detach()
        # A copy, since a model that writes into its input must not write into the caller's images.
        overruled = self.autocast == "off" and torch.is_autocast_enabled(x.device.type)
        return x.to(at_least_single(x.dtype) if overruled else x.dtype, copy=True)

    def evaluate(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and logits, as in plain training: running statistics and whatever else the model keeps move."""
        with ExitStack() as switched:
            if self.frozen:
                switched.enter_context(_eval_mode(self.batch_norms))
            if self.autocast == "off":
                switched.enter_context(full_precision(x.device.type, compiled=self.compiled))
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

    def record(self, x: Tensor, y: Tensor) -> Pass:
        """Evaluate with a graph back to the input, so that it can be repeated."""
        x = x.detach().requires_grad_()
        begun = self.state.now(x.device)
        losses, logits = self.evaluate(x, y)
        return Pass(x, y, losses, logits, begun)

    def repeat(self, recorded: Pass, x: Tensor) -> Tensor:
        """The losses with the images replaced by `x`: same labels, dropout masks and state, and nothing moves."""
        with recorded.begun.replayed():
            return self.evaluate(x, recorded.y)[0]


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


@contextmanager
def _eval_mode(layers: Sequence[nn.Module]) -> Iterator[None]:
    """In eval mode, and back."""
    for layer in layers:
        layer.training = False
    try:
        yield
    finally:
        for layer in layers:
            layer.training = True
