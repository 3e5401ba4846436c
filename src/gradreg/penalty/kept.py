"""Tensors that a model keeps of a pass whose graph is gone by the end of the step, such as a loss of its own."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from gradreg.calling.contents import written_by_a_user
from gradreg.errors import ModelError


def kept_with_graphs(modules: Iterable[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    """What modules that users wrote keep in attributes that a loss could be made of, by name."""
    for module in filter(written_by_a_user, modules):
        for name, value in list(vars(module).items()):
            for tensor in _tensors_of(value):
                if tensor.grad_fn is not None:
                    yield f"{type(module).__name__}.{name}", tensor


def _tensors_of(value: object) -> Iterator[Tensor]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    yield from (part for part in parts if isinstance(part, Tensor))


def refuse_backward(name: str, tensor: Tensor) -> None:
    """Say in a backward through this tensor what torch would only call a second one."""

    def refuse(*_: Any) -> None:
        raise ModelError(
            f"The model keeps {name} of a forward whose graph the penalty has differentiated and freed, one graph at a "
            "time: pass graphs=2, so that a loss of it can be added, or detach() it."
        )

    tensor.grad_fn.register_prehook(refuse)  # type: ignore[union-attr]
