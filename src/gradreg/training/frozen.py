"""A network of which only a part is trained: the rest keeps its weights, its statistics and its mode."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from gradreg.errors import ConfigError


@contextmanager
def trained_only(model: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Inside, only parameters whose names begin so are trained; what has none of them computes as for evaluation."""
    if not names:
        yield
        return
    parameters = dict(model.named_parameters())
    missing = [name for name in names if not any(_begins(each, name) for each in parameters)]
    if missing:
        known = ", ".join(sorted({".".join(name.split(".")[:2]) for name in parameters})[:12])
        raise ConfigError(f"train_only must name parameters of the network; got {missing[0]!r}. It has {known}.")
    before = {name: parameter.requires_grad for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        parameter.requires_grad_(any(_begins(name, each) for each in names))
    hooks = [module.register_forward_pre_hook(_in_eval_mode) for module in model.modules() if _is_frozen(module)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for name, parameter in parameters.items():
            parameter.requires_grad_(before[name])


def _begins(name: str, beginning: str) -> bool:
    return f"{name}.".startswith(f"{beginning}.")


def _is_frozen(module: nn.Module) -> bool:
    weights = list(module.parameters())
    return bool(weights) and not any(weight.requires_grad for weight in weights)


def _in_eval_mode(module: nn.Module, images: tuple[Any, ...]) -> None:
    """Whoever puts the network in train mode: statistics of a frozen part must not move."""
    module.eval()
