"""One graph at a time: weight gradients of a pass as soon as its share of the loss is known.

The gradient of a step is Σ c·∇ℓ over its passes. Where the coefficients c of a pass are known before the next pass
begins, differentiating it there and then frees its graph: a step holds one graph at a time, as plain training does.

What is known so is known at the leaves. Where weights were computed before the step, as by a hypernetwork or in the
inner loop of meta-learning, somebody may ask for the gradient at these, which only the graphs can tell: they are kept.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradreg.calling.answers import required
from gradreg.calling.state import Moment
from gradreg.errors import ConfigError, ModelError
from gradreg.norms import per_image
from gradreg.penalty.kept import kept_with_graphs, refuse_backward
from gradreg.penalty.passes import Calls, Pass, as_recorded


class Terms:
    """The gradient of Σ c·ℓ: what is known of it, and the losses through which `backward` will find the rest."""

    def __init__(self, calls: Calls, begun: Moment, *, wanted: bool) -> None:
        self.wanted, self._calls, self._begun = wanted, calls, begun
        self._known: dict[Tensor, Tensor] = {}
        self._open: list[tuple[Tensor, Tensor]] = []
        self._start = _moment()
        self._freed: set[Any] = set()

    def settle(self, losses: Tensor, coefficients: float | Tensor, *, but: Tensor | None = None) -> None:
        """Differentiate losses now, once and for all, to all leaves but one."""
        if not self.wanted:
            return
        graph = self._graph(losses, but)
        if graph.older:
            self._keep(losses, coefficients)
        elif graph.leaves:
            self._settle(graph, losses, coefficients)

    def settle_with_input(self, part: Pass, coefficient: float | Tensor) -> Tensor:
        """The same, and ∇ℓ(x) out of the same backward; coefficients of single images must not be 0."""
        if not self.wanted or (isinstance(coefficient, float) and coefficient == 0):
            return part.input_gradient(differentiable=False, retain=False)
        graph = self._graph(part.losses, part.x)
        if graph.older:
            gradient, losses, _ = part.input_gradient_and_answer()
            self._keep(losses, coefficient)
            return gradient
        if not graph.leaves:
            return part.input_gradient(differentiable=False, retain=False)
        each = isinstance(coefficient, Tensor) and coefficient.ndim > 0
        outer = _each(coefficient if each else 1.0, part.losses)
        self._freed |= graph.nodes
        with self._calls.backward(self._begun), _unheard([part.x, *graph.leaves]), as_recorded(part.losses):
            gradient, *gradients = torch.autograd.grad(part.losses, [part.x, *graph.leaves], outer, allow_unused=True)
        if each:
            self._add(graph.leaves, gradients)
            return required(gradient) / per_image(outer, part.x)
        self._add(graph.leaves, [None if found is None else coefficient * found for found in gradients])
        return required(gradient)

    def leave(self, losses: Tensor, coefficients: float | Tensor) -> None:
        """Leave losses to `backward`, graph and all."""
        if self.wanted:
            self._graph(losses)
            self._open.append((losses, _each(coefficients, losses)))

    def loss(self, value: Tensor) -> Tensor:
        """`value`, with the gradient of the terms.

        Of a model that computes parts again in a backward nothing is left open: later it would find another state.
        """
        if self._calls.known.recomputes:
            left, self._open = self._open, []
            for losses, coefficients in left:
                self.settle(losses, coefficients)
        if self._freed and self._calls.state.learning:
            self._explain_what_is_kept()
        pairs = [*self._open, *self._known.items()]
        found: Tensor = _Prescribed.apply(value, *(of for of, _ in pairs), *(gradient for _, gradient in pairs))  # type: ignore[no-untyped-call]
        return found

    def _explain_what_is_kept(self) -> None:
        """At a model's first step: what it keeps of a freed graph, as an auxiliary loss, says so in a backward."""
        for name, tensor in kept_with_graphs(self._calls.modules):
            if any(map(_is_spent, _walk(tensor, 0, None).nodes & self._freed)):
                refuse_backward(name, tensor)

    def _settle(self, graph: "_Graph", losses: Tensor, coefficients: float | Tensor) -> None:
        self._freed |= graph.nodes
        with self._calls.backward(self._begun), _unheard(graph.leaves), as_recorded(losses):
            gradients = torch.autograd.grad(losses, graph.leaves, _each(coefficients, losses), allow_unused=True)
        self._add(graph.leaves, gradients)

    def _keep(self, losses: Tensor, coefficients: float | Tensor) -> None:
        self._calls.check_graphs_can_be_kept("Weights computed before the call", "compute them in the model's forward")
        self._open.append((losses, _each(coefficients, losses)))

    def _graph(self, losses: Tensor, but: Tensor | None = None) -> "_Graph":
        """The graph of losses, of which nothing may be settled and freed already."""
        graph = _walk(losses, self._start, but)
        if any(map(_is_spent, graph.nodes & self._freed)):
            raise ModelError(
                "The model keeps a computed weight or feature from one forward to the next, and the graph of the first "
                "is differentiated and freed before the second: compute it anew in every forward, or before the call, "
                "or pass graphs=2."
            )
        return graph

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
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivatives()
        gradients: Sequence[Tensor] = ctx.saved_tensors
        return None, *(outer.to(gradient.dtype) * gradient for gradient in gradients), *([None] * len(gradients))


class _OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> Tensor:
        _refuse_second_derivatives()
        return outer


def once_differentiable(loss: Tensor) -> Tensor:
    """The same loss, whose gradient has none: the direction of a difference is a constant to it."""
    found: Tensor = _OnceDifferentiable.apply(loss)  # type: ignore[no-untyped-call]
    return found


def _refuse_second_derivatives() -> None:
    """Gradients are enabled in a backward if and only if it is to be differentiated itself."""
    if torch.is_grad_enabled():
        raise ConfigError(
            "The penalty by finite differences has first derivatives only, and create_graph=True asks for second ones: "
            "leave it out, or pass method='double-backprop'."
        )


def leaves(loss: Tensor, but: Tensor | None = None) -> list[Tensor]:
    """The tensors, but one, that `loss.backward()` would give a gradient to."""
    return _walk(loss, 0, but).leaves


@dataclass(frozen=True)
class _Graph:
    leaves: list[Tensor]
    nodes: set[Any]
    """All besides the leaves'."""
    older: bool
    """Whether some were recorded before the step: weights were computed from others there."""


def _walk(loss: Tensor, start: int, but: Tensor | None) -> _Graph:
    """What is below a loss."""
    found: list[Tensor] = []
    ends, nodes, ahead = set(), set(), [loss.grad_fn]
    while ahead:
        node: Any = ahead.pop()
        if node is None or node in nodes or node in ends:
            continue
        if not hasattr(node, "variable"):
            nodes.add(node)
            ahead.extend(parent for parent, _ in node.next_functions)
            continue
        ends.add(node)
        if node.variable is not but:
            found.append(node.variable)
    return _Graph(found, nodes, any(node._sequence_nr() < start for node in nodes))


def _is_spent(node: Any) -> bool:
    """Whether what a node needs for its backward is freed: views of weights need nothing and can be shared."""
    kept = [name for name in dir(node) if name.startswith("_saved_") or name == "saved_tensors"]
    try:
        for name in kept:
            getattr(node, name)
    except RuntimeError:
        return True
    return False


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
