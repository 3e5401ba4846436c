"""What earlier calls have shown about a model, so that not every step has to find it out again."""

import math
from collections.abc import Sequence
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch import Tensor, nn

from gradreg.calling.answers import Model
from gradreg.checks.tensors import on_host

Place = tuple[int, str, str]
"""The number of a module, "buffer", "attribute" or the name of an object that it holds, and a name in that."""


class Known:
    """What is known of one model in one mode; None: not known yet."""

    def __init__(self) -> None:
        self.moving: tuple[Place, ...] | None = None
        """The places that a pass changes."""
        self.draws: bool | None = None
        """Whether it draws from NumPy's or Python's global stream."""
        self.recomputes: bool | None = None
        """Whether a backward calls its modules again, as activation checkpointing does."""
        self.interacts: bool | None = None
        """Whether the loss of an image depends on the others of its batch; found out where a part passes alone."""
        self._steps = 0
        self._smallest: dict[object, float] = {}

    def due(self, kind: object, h: float | Tensor) -> tuple[bool, bool]:
        """Whether this step is to find out if passes repeat, and if they resolve a difference over h.

        Both at the first step of a kind, the first again at the 10th, 100th, …, the second whenever the least h is less
        than half of what it was. On an accelerator h is looked at in the steps that look anyway.
        """
        self._steps += 1
        if self._steps + 1 in _AGAIN:
            self.moving = self.draws = self.recomputes = self.interacts = None  # the next step finds out again
        again, resolves = self._steps in _AGAIN, kind not in self._smallest
        if not resolves and (again or not isinstance(h, Tensor) or on_host(h)):
            resolves = _least(h) < self._smallest[kind] / 2
        return resolves or again, resolves

    def trust(self, kind: object, h: float | Tensor) -> None:
        """Passes of that kind repeat, and resolve a difference over h."""
        self._smallest[kind] = min(self._smallest.get(kind, math.inf), _least(h))


_AGAIN = {10**power for power in range(1, 10)}
_KNOWN: WeakKeyDictionary[Any, dict[object, Known]] = WeakKeyDictionary()


def known(model: Model, modules: Sequence[nn.Module], *about: object) -> Known:
    """The record of a model in the mode that its modules are in, and of whatever else it depends on.

    It holds no reference to the model, which may be deleted. A function that is made anew in every step is known by its
    code and by the modules that it refers to.
    """
    modes = tuple(getattr(module, "training", False) for module in modules)
    holder = _identity(model)
    if isinstance(holder, CodeType | type) and modules:  # an address would outlive its module, and be another's
        holder, about = modules[0], (holder, *about)
    return _KNOWN.setdefault(holder, {}).setdefault((*map(id, modules[:1]), modes, *about), Known())


def code_of(function: Any) -> object:
    """What a criterion or output is known by: its code, or its class. Many are made anew in every step."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    return function.__code__ if isinstance(function, FunctionType) else type(function)


def _least(h: float | Tensor) -> float:
    return float(h.min()) if isinstance(h, Tensor) else h


def _identity(model: Any) -> Any:
    while not isinstance(model, nn.Module):
        if isinstance(model, partial):
            model = model.func
        elif isinstance(model, MethodType):
            model = model.__self__
        else:
            named = model.__code__ if isinstance(model, FunctionType) else model
            return named if _can_be_a_key(named) else type(model)
    return model


def _can_be_a_key(found: Any) -> bool:
    try:
        return hash(found) is not None and ref(found) is not None
    except TypeError:
        return False
