"""Values that a model keeps: copies that a pass may write into, and which of them it has changed."""

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

# Longer containers are data, not state.
_MOST = 1000


_SEQUENCES, _MAPPINGS = (list, deque), (dict, OrderedDict, defaultdict, Counter)
_CONTAINERS = frozenset((*_SEQUENCES, *_MAPPINGS, set, tuple))
_PLAIN = (Tensor, np.ndarray, int, float, str)


def is_plain(value: object) -> bool:
    """A tensor, an array, a number, a text or None, or a small container, whatever is in it."""
    if type(value) in _CONTAINERS:
        return len(value) <= _MOST  # type: ignore[arg-type]
    return value is None or isinstance(value, _PLAIN)


def is_container(value: object) -> bool:
    """Whether it can be given other contents in place."""
    return type(value) in _CONTAINERS and type(value) is not tuple


def refill(container: Any, like: Any) -> bool:
    """Give a container what another one of its kind has, in place, so that whoever else holds it sees the same.

    False for what is no container, or of another kind.
    """
    if type(container) is not type(like) or not is_container(container):
        return False
    values = copy.copy(like)
    container.clear()
    (container.extend if isinstance(container, _SEQUENCES) else container.update)(values)
    return True


def holds_fractions(value: object) -> bool:
    """A tensor or number that is not whole, or a small container with one in it."""
    if isinstance(value, list | tuple | dict | deque):
        parts = value.values() if isinstance(value, dict) else value
        return len(value) <= _MOST and any(map(_is_fraction, parts))
    return _is_fraction(value)


def _is_fraction(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind == "f")
    return isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point())


def copies(values: Sequence[Any]) -> list[Any]:
    """Copies of tensors that a forward could write into, in containers too; what has a graph is computed in every pass.

    Two places that hold one tensor hold one copy.
    """
    copied: dict[int, Any] = {}
    return [_copied(value, copied) for value in values]


def _copied(value: Any, copied: dict[int, Any]) -> Any:
    if id(value) not in copied:
        found = value
        if isinstance(value, Tensor) and not value.requires_grad and not is_lazy(value):
            found = value.clone()
        elif isinstance(value, np.ndarray | set):
            found = value.copy()
        elif is_container(value):
            found = copied[id(value)] = copy.copy(value)  # before its parts, of which it may be one
            for key in list(value) if isinstance(value, dict) else range(len(value)):
                found[key] = _copied(value[key], copied)
        elif type(value) is tuple:
            found = tuple(_copied(part, copied) for part in value)
        copied[id(value)] = found
    return copied[id(value)]


def changed(pairs: Sequence[tuple[Any, Any]]) -> list[bool]:
    """Which values differ from what they were, by one look at each device."""
    found = [_differ_at_all(before, after) for before, after in pairs]
    places: dict[torch.device, list[int]] = {}
    for number, flag in enumerate(found):
        if isinstance(flag, Tensor):
            places.setdefault(flag.device, []).append(number)
    for numbers in places.values():
        flags = torch.stack([torch.as_tensor(found[number]) for number in numbers]).tolist()
        for number, flag in zip(numbers, flags, strict=True):
            found[number] = flag
    return [bool(flag) for flag in found]


def _differ_at_all(before: Any, after: Any) -> bool | Tensor:
    try:
        return _differ(before, after)
    except RecursionError:  # a container that holds itself
        return True


def _differ(before: Any, after: Any) -> bool | Tensor:
    if isinstance(before, list | tuple | deque) and type(before) is type(after):
        return len(before) != len(after) or any(bool(_differ(old, new)) for old, new in zip(before, after, strict=True))
    if isinstance(before, dict) and isinstance(after, dict):
        return list(before) != list(after) or any(bool(_differ(before[key], after[key])) for key in before)
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return before is not after and not (type(before) is type(after) and _equal(before, after))
    if before is after:
        return False
    if before.is_meta or (before.shape, before.dtype, before.device) != (after.shape, after.dtype, after.device):
        return True
    if before.is_quantized:
        return not torch.equal(before, after)
    if before.layout != torch.strided:
        return not torch.equal(before.to_dense(), after.to_dense())
    return (_comparable(before) != _comparable(after)).any()


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after)
    try:
        return bool(before == after)
    except Exception:  # of somebody's class: such as a table, which is compared cell by cell
        return False


def _comparable(tensor: Tensor) -> Tensor:
    """Numbers of eight bits have no comparisons of their own."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor
