"""One graph at a time: weight gradients of a pass as soon as its share of the loss is known.

The gradient of a step is Σ c·∇ℓ over its passes. Where the coefficients c of a pass are known before the next pass
begins, differentiating it there and then frees its graph: a step holds one graph at a time, as plain training does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradreg.calling.answers import required
from gradreg.calling.state import Moment
from gradreg.norms import per_image
from gradreg.penalty.passes import Calls, Pass, as_recorded


class Terms:
    """The gradient of Σ c·ℓ: what is known of it, and the losses through which `backward` will find the rest."""

    def __init__(self, calls: Calls, begun: Moment, *, wanted: bool) -> None:
        self.wanted, self._calls, self._begun = wanted, calls, begun
        self._known: dict[Tensor, Tensor] = {}
        self._open: list[tuple[Tensor, Tensor]] = []
        self._start = _moment()

    def settle(self, losses: Tensor, coefficients: float | Tensor, *, but: Tensor | None = None) -> None:
        """Differentiate losses now, once and for all, to all leaves but one."""
        weights, older = _walk(losses, self._start, but)
        if self.wanted and weights:
            with self._calls.backward(self._begun), _unheard(weights), as_recorded(losses):
                gradients = torch.autograd.grad(
                    losses, weights, _each(coefficients, losses), retain_graph=older, allow_unused=True
                )
            self._add(weights, gradients)

    def settle_with_input(self, part: Pass, coefficient: float | Tensor) -> Tensor:
        """The same, and ∇ℓ(x) out of the same backward; coefficients of single images must not be 0."""
        weights, older = _walk(part.losses, self._start, but=part.x)
        nothing = isinstance(coefficient, float) and coefficient == 0
        if nothing or not self.wanted or not weights:
            return part.input_gradient(differentiable=False, retain=older)
        each = isinstance(coefficient, Tensor) and coefficient.ndim > 0
        outer = _each(coefficient if each else 1.0, part.losses)
        with self._calls.backward(self._begun), _unheard([part.x, *weights]), as_recorded(part.losses):
            gradient, *gradients = torch.autograd.grad(
                part.losses, [part.x, *weights], outer, retain_graph=older, allow_unused=True
            )
        if each:
            self._add(weights, gradients)
            return required(gradient) / per_image(outer, part.x)
        self._add(weights, [None if found is None else coefficient * found for found in gradients])
        return required(gradient)

    def leave(self, losses: Tensor, coefficients: float | Tensor) -> None:
        """Leave losses to `backward`, graph and all."""
        if self.wanted:
            self._open.append((losses, _each(coefficients, losses)))

    def loss(self, value: Tensor) -> Tensor:
        """`value`, with the gradient of the terms.

        Of a model that computes parts again in a backward nothing is left open: later it would find another state.
        """
        if self._calls.known.recomputes:
            for losses, coefficients in self._open:
                self.settle(losses, coefficients)
            self._open.clear()
        pairs = [*self._open, *self._known.items()]
        found: Tensor = _Prescribed.apply(value, *(of for of, _ in pairs), *(gradient for _, gradient in pairs))  # type: ignore[no-untyped-call]
        return found

    def _add(self, weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        for weight, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                before = self._known.get(weight)
                self._known[weight] = gradient if before is None else before + gradient


class _Prescribed(torch.autograd.Function):
    """A number whose gradients were worked out elsewhere: `apply(value, *inputs, *gradients)`.

    The inputs are leaves too, so whatever listens to a weight's gradient hears one sum, once, in `backward`.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, *pairs: Tensor) -> Tensor:
        ctx.save_for_backward(*pairs[len(pairs) // 2 :])
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients: Sequence[Tensor] = ctx.saved_tensors
        return None, *(outer.to(gradient.dtype) * gradient for gradient in gradients), *([None] * len(gradients))


def leaves(loss: Tensor, but: Tensor | None = None) -> list[Tensor]:
    """The tensors, but one, that `loss.backward()` would give a gradient to."""
    return _walk(loss, 0, but)[0]


def _walk(loss: Tensor, start: int, but: Tensor | None) -> tuple[list[Tensor], bool]:
    """The leaves below a loss, and whether some of its graph was recorded before `start` and so is not ours to free.

    That is so where weights were computed from others before the step: the next pass needs that graph again.
    """
    found: list[Tensor] = []
    older, seen, ahead = False, set(), [loss.grad_fn]
    while ahead:
        node: Any = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if not hasattr(node, "variable"):
            older |= node._sequence_nr() < start
        elif node.variable is not but:
            found.append(node.variable)
        ahead.extend(parent for parent, _ in node.next_functions)
    return found, older


def _each(coefficients: float | Tensor, losses: Tensor) -> Tensor:
    if isinstance(coefficients, Tensor):
        return coefficients.to(losses.device, losses.dtype).expand_as(losses)
    return torch.full_like(losses, coefficients)


def _moment() -> int:
    """Autograd numbers what it records; this is the number it has come to."""
    with torch.enable_grad():
        node: Any = torch.zeros((), requires_grad=True).view(()).grad_fn
    return int(node._sequence_nr())


@contextmanager
def _unheard(weights: list[Tensor]) -> Iterator[None]:
    """Hooks on a weight wait for its whole gradient: `autograd.grad` would tell them about every part.

    On the images only module trackers have hooks, as torch's FLOP counter; those cannot follow `autograd.grad` there.
    """
    hooks = [weight._backward_hooks for weight in weights if weight._backward_hooks]
    kept = [dict(of_one) for of_one in hooks]
    for of_one in hooks:
        of_one.clear()
    try:
        yield
    finally:
        for of_one, before in zip(hooks, kept, strict=True):
            of_one.update(before)
