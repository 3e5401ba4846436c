"""Tensors that a function refers to: buffers of a model that is a function, as with `torch.func.functional_call`."""

from collections.abc import Iterator, MutableMapping
from types import CellType, FunctionType
from typing import Any

from torch import Tensor


class Variables(MutableMapping[str, Any]):
    """What a function's own code reads from outside of it, by name.

    Those that are tensors without a gradient, or dictionaries of tensors, are listed: anything else may be how somebody
    counts calls.
    """

    def __init__(self, function: FunctionType) -> None:
        code = function.__code__
        cells: tuple[CellType, ...] = function.__closure__ or ()
        self._cells = dict(zip(code.co_freevars, cells, strict=True))
        self._globals, self._names = function.__globals__, code.co_names

    def __getitem__(self, name: str) -> Any:
        if name not in self._cells:
            return self._globals[name]
        try:
            return self._cells[name].cell_contents
        except ValueError as error:  # not bound yet
            raise KeyError(name) from error

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self._cells:
            self._cells[name].cell_contents = value
        else:
            self._globals[name] = value

    def __delitem__(self, name: str) -> None:
        if name in self._cells:
            del self._cells[name].cell_contents
        else:
            del self._globals[name]

    def __iter__(self) -> Iterator[str]:
        for name in dict.fromkeys((*self._cells, *self._names)):
            if _are_buffers(self.get(name)):
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _are_buffers(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(part, Tensor) for part in value.values())
    return isinstance(value, Tensor) and not value.requires_grad
