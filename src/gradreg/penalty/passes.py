"""Calling a model more than once in one step without the calls disturbing each other.

A finite difference needs ℓ(x) and ℓ(x + hd) of *the same* function: same dropout masks, same arithmetic, and batch
normalisation in the mode that the caller chose. Whatever a call switches is switched back after it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from gradreg.calling.answers import Model as Model
from gradreg.calling.answers import Output, answer, check_logits, leaf, required
from gradreg.calling.arithmetic import full_precision, outside_autocast
from gradreg.calling.contents import contents, is_compiled
from gradreg.calling.known import code_of, known
from gradreg.calling.recomputing import differentiating, watching
from gradreg.calling.state import Moment, State
from gradreg.calling.targets import Target, check_losses
from gradreg.checks.tensors import plain
from gradreg.defaults import callers_default
from gradreg.errors import ModelError
from gradreg.losses import cross_entropy
from gradreg.penalty.normalisation import BatchNormMode as BatchNormMode
from gradreg.penalty.normalisation import in_eval_mode, layers_with_statistics, take_the_batch_s
from gradreg.precision import at_least_single

AutocastMode = Literal["off", "keep"]


class Criterion(Protocol):
    """A loss with one value per image, such as `torch.nn.CrossEntropyLoss(reduction="none")`.

    The second argument is whatever targets the caller passed: labels, soft labels, masks, a mapping, a tuple.
    """

    def __call__(self, logits: Tensor, y: Target, /) -> Tensor: ...


@dataclass(frozen=True)
class Pass:
    """A recorded evaluation: per-image losses with their graph, the input they depend on, and how to repeat it."""

    at: Tensor
    """The images."""
    x: Tensor
    """The leaf that the model was given, and may have written into."""
    y: Target
    losses: Tensor
    logits: Tensor
    begun: Moment
    calls: "Calls"
    draws: bool = False
    """Whether it drew random numbers, such as dropout's masks; where that was asked for."""

    def input_gradient(self, *, differentiable: bool, retain: bool = True) -> Tensor:
        """∇ℓ(x) of each image's own loss, of the sum and not the mean: no 1/m. Weights get no gradient."""
        total = self.losses.sum()
        gradient = None
        with self.calls.backward(self.begun), as_recorded(total):
            if differentiable and total.requires_grad:
                (gradient,) = torch.autograd.grad(total, self.x, create_graph=True, allow_unused=True)
            elif total.requires_grad:
                # Not autograd.grad, which torch's FLOP counter and other module trackers cannot follow to a leaf.
                torch.autograd.backward(total, inputs=[self.x], retain_graph=retain)
                gradient, self.x.grad = self.x.grad, None
        return required(gradient)

    def input_gradient_and_answer(self) -> tuple[Tensor, Tensor, Tensor]:
        """∇ℓ(x), and the losses and logits with a graph for the weights' gradients.

        A compiled model whose first backward kept no graph gives its memory away ever after ("donated buffers") and
        refuses to be differentiated twice: it is then asked once more.
        """
        try:
            return self.input_gradient(differentiable=False), self.losses, self.logits
        except RuntimeError as error:
            if "donated buffer" not in str(error):
                raise
        return self.input_gradient(differentiable=False, retain=False), *self.calls.answer_again(self, self.at)


def as_recorded(losses: Tensor) -> AbstractContextManager[object]:
    """Differentiate in the precision of the forward: autocast would round a float32 pass's gradients to half of it."""
    return outside_autocast(losses.device.type)


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
        self.frozen = bn == "frozen"
        self._norms = layers_with_statistics(modules)
        self.compiled = is_compiled(model, modules)
        own = set(map(id, modules))
        others, more = contents(criterion, output)
        others = [module for module in others if id(module) not in own]
        # What moves is known by its place among these modules.
        about = (bn, autocast, code_of(criterion), code_of(output), *map(type, others))
        self.known = known(model, modules, *about)
        self.modules = [*modules, *others]
        generators += [generator for generator in more if all(generator is not each for each in generators)]
        self.state = State(self.modules, generators, self.known, owners=[model, criterion, output])

    @cached_property
    def weights(self) -> list[Tensor]:
        """Parameters with values of their own: those of parallel training come and go in a pass."""
        found = (weight for module in self.modules for weight in module._parameters.values())
        return [weight for weight in found if type(weight) is nn.Parameter and not weight.is_inference()]

    def writes(self) -> int:
        """How often weights were written to so far."""
        return sum(weight._version for weight in self.weights)

    @property
    def images_interact(self) -> bool:
        """Whether a part of the batch alone would give other losses, as far as is known."""
        return self._takes_batch_statistics or bool(self.known.interacts)

    @property
    def _takes_batch_statistics(self) -> bool:
        return not self.frozen and take_the_batch_s(self._norms)

    def try_interaction(self, begun: Moment, x: Tensor, y: Target) -> None:
        """Find out, once, whether losses change when every other image is replaced by its neighbour.

        Batch statistics of any kind show so, also where masks are drawn for the whole batch: these stay what they are.
        """
        if self._takes_batch_statistics or self.known.interacts is not None or len(x) < 2:
            return
        mixed = x.clone()
        mixed[1::2] = x[: 2 * (len(x) // 2) : 2]
        # As the model was compiled: without gradients it would be compiled once more.
        with torch.set_grad_enabled(self.compiled):
            pair = []
            for images in (x, mixed):
                with begun.replayed():
                    pair.append(self.evaluate(images, y)[0].detach()[::2])
        before, after = pair
        rounding = 64 * torch.finfo(before.dtype).eps * (1 + before.abs())
        self.known.interacts = not bool(((after - before).abs() <= rounding).all())

    def images(self, x: Tensor) -> Tensor:
        """The images without a graph, and in full precision where autocast is switched off."""
        overruled = self.autocast == "off" and torch.is_autocast_enabled(x.device.type)
        return plain(x).detach().to(at_least_single(x.dtype) if overruled else x.dtype)

    def fill_caches(self, device_type: str) -> None:
        """Under `parametrize.cached()` compute weights that all passes of the step will share before the first of them.

        So they are found to be older than the step, and none of its passes to own what belongs to the next one too.
        """
        if not parametrize._cache_enabled:
            return
        with self._conditions(device_type), callers_default():
            for module in filter(parametrize.is_parametrized, self.modules):
                for name in module.parametrizations:  # type: ignore[union-attr]
                    getattr(module, name)

    def evaluate(self, x: Tensor, y: Target) -> tuple[Tensor, Tensor]:
        """Losses and logits, as in plain training: running statistics and whatever else the model keeps move."""
        with self._conditions(x.device.type):
            logits = answer(self.model, x, self.output)
            if needs_classes(self.criterion, y):
                check_logits(logits, len(x))
            with callers_default():
                losses = self.criterion(logits, y)
        return check_losses(losses, len(x)), logits

    def record(self, x: Tensor, y: Target, begun: Moment | None = None) -> Pass:
        """Evaluate with a graph back to the input, so that it can be repeated as from `begun` (default: now)."""
        begun = begun or self.state.now(x.device)
        given = leaf(x)
        losses, logits = self.evaluate(given, y)
        return Pass(x.detach(), given, y, losses, logits, begun, self)

    @contextmanager
    def backward(self, begun: Moment) -> Iterator[None]:
        """Differentiate passes that began at that moment; parts that are computed again find what they found then."""
        with differentiating():
            if self.known.recomputes is False:
                yield
                return
            with watching(self.known), self.state.replaced(begun), self._conditions(begun.random.device.type):
                yield

    @property
    def may_differ_later(self) -> bool:
        """Whether parts that are computed again after the call would find other modes than in it.

        It does not ask whether there are such parts: a resumed run, which does not know yet, must do the same.
        """
        return self.frozen and bool(self._norms)

    def check_graphs_can_be_kept(self, kept_by: str, instead: str) -> None:
        """Refuse to leave graphs for later whose parts are computed again in other modes, or move state once more."""
        if self.known.recomputes and (self.may_differ_later or self.state.moves):
            raise ModelError(
                f"{kept_by} leave activation checkpointing to loss.backward(), where this model's state or batch "
                f"normalisation would not be what it was: {instead}."
            )

    @contextmanager
    def _conditions(self, device_type: str) -> Iterator[None]:
        with ExitStack() as switched:
            if self.frozen:
                switched.enter_context(in_eval_mode(self._norms))
            if self.autocast == "off":
                switched.enter_context(full_precision(device_type, compiled=self.compiled))
            yield

    def repeat(self, recorded: Pass, x: Tensor) -> Tensor:
        """The losses with the images replaced by `x`: same labels, dropout masks and state, and nothing moves."""
        return self.answer_again(recorded, x)[0]

    def again(self, recorded: Pass, x: Tensor, *, notice_draws: bool = False) -> Pass:
        """The same as a pass, whose gradient can be taken if `x` is a leaf."""
        with recorded.begun.replayed():
            losses, logits = self.evaluate(x, recorded.y)
            draws = notice_draws and recorded.begun.random.moved()
        return Pass(x.detach(), x, recorded.y, losses, logits, recorded.begun, self, draws)

    def answer_again(self, recorded: Pass, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same with the logits."""
        with recorded.begun.replayed():
            return self.evaluate(x, recorded.y)


def needs_classes(criterion: Criterion, y: Target) -> bool:
    """Cross entropy of a single class is 0 whatever the logit; a criterion of the user's own may want other shapes."""
    if not isinstance(y, Tensor) or y.ndim > 2:
        return False
    return isinstance(criterion, nn.CrossEntropyLoss) or getattr(criterion, "func", criterion) is cross_entropy
