"""What a model consists of: the modules and random generators that it holds or, as a function, refers to."""

import sys
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

from torch import Tensor, nn

from gradreg.calling.answers import Model
from gradreg.calling.streams import GENERATORS, Generator

# Beyond so many objects a function refers to something other than a model.
_MOST = 2000
# Functions of these packages refer to no model.
_LIBRARIES = ("torch", "numpy", "functools", "gradreg")


def contents(*models: object) -> tuple[list[nn.Module], list[Generator]]:
    """All modules, each once, and the random generators that they or the function itself hold.

    `lambda x: net(x)[0]` is as much a model as `net`: it is searched through closures, arguments, attributes and the
    global names that its code uses.
    """
    modules: dict[int, nn.Module] = {}
    generators: dict[int, Generator] = {}
    seen: set[int] = set()
    ahead: list[Any] = [*models]
    while ahead and len(seen) < _MOST:
        found = ahead.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, GENERATORS):
            generators[id(found)] = found
        elif isinstance(found, nn.Module):
            for module in found.modules():
                modules.setdefault(id(module), module)
                ahead.extend(_attributes(module))
        else:
            ahead.extend(_within(found))
    return list(modules.values()), list(generators.values())


def asks_functions(model: nn.Module) -> bool:
    """Whether weights do not say what it computes: it refers to modules by functions, or wraps a function as it is."""
    own = {id(module) for module in model.modules()}
    if any(id(module) not in own for module in contents(model)[0]):
        return True
    wrappers = (module for module in model.modules() if type(module).__module__.startswith("gradreg."))
    return any(isinstance(value, _FUNCTIONS) for module in wrappers for value in vars(module).values())


def is_said_by_weights(model: nn.Module) -> bool:
    """Whether layers and weights say all that it computes: it has no code that a user wrote, no hook, no function."""
    return not asks_functions(model) and all(
        type(module).__module__.startswith(("torch.nn.", "gradreg."))
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
        for module in model.modules()
    )


# No state is kept in objects of these, beyond what is known of generators.
_KNOWN = sys.stdlib_module_names.union(("torch", "numpy", "gradreg")) - {"__main__"}
_FUNCTIONS = (FunctionType, MethodType, partial)
_FOLLOWED = (*GENERATORS, *_FUNCTIONS)


def written_by_a_user(module: nn.Module) -> bool:
    """Modules of torch keep their state in buffers; what else they hold is their own affair."""
    return type(module).__module__.split(".")[0] != "torch"


def is_keeper(value: object) -> bool:
    """An object of a class that a user wrote, and no module: what it has in attributes may be state."""
    kind = type(value)
    if kind is SimpleNamespace:
        return True
    return (
        kind.__module__.partition(".")[0] not in _KNOWN
        and not isinstance(value, nn.Module | Tensor | type)
        and hasattr(value, "__dict__")
    )


def in_train_mode(model: Model) -> list[nn.Module]:
    """The modules in train mode, which a function does not expose.

    Those of torch.export have the mode in their code, and a flag that cannot be set.
    """
    if not isinstance(model, nn.Module) or "train" in vars(model):
        return []
    return [module for module in model.modules() if is_training(module)]


def is_training(module: nn.Module) -> bool:
    """Whether it is in train mode; modules that TorchScript froze have no mode any more."""
    return getattr(module, "training", False)


def is_compiled(model: Model, modules: list[nn.Module]) -> bool:
    """Whether torch.compile made the model or a part of it, told without importing the compiler."""
    parts = any("_orig_mod" in module._modules or module._compiled_call_impl is not None for module in modules)
    return parts or hasattr(model, "_torchdynamo_orig_callable")


def _attributes(module: nn.Module) -> list[Any]:
    held = vars(module)
    values = held.values() if written_by_a_user(module) else (held["forward"],) if "forward" in held else ()
    return [value for value in values if isinstance(value, _FOLLOWED)]


def _within(found: Any) -> Iterator[Any]:
    if isinstance(found, MethodType):
        yield from (found.__self__, found.__func__)
    elif isinstance(found, partial):
        yield from (found.func, *found.args, *found.keywords.values())
    elif isinstance(found, FunctionType):
        if found.__module__ is not None and found.__module__.split(".")[0] in _LIBRARIES:
            names: tuple[str, ...] = ()
        else:
            names = found.__code__.co_names
        yield from (cell.cell_contents for cell in found.__closure__ or () if _filled(cell))
        yield from found.__defaults__ or ()
        yield from (found.__globals__[name] for name in names if isinstance(found.__globals__.get(name), _NAMED))
    elif isinstance(found, list | tuple):
        yield from found[:_MOST]
    elif isinstance(found, dict):
        yield from list(found.values())[:_MOST]
    elif callable(found) and not isinstance(found, type) and hasattr(found, "__dict__"):
        yield from vars(found).values()


_NAMED = (*_FOLLOWED, nn.Module)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name that is not bound yet
        return False
