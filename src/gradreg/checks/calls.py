"""A function whose arguments are checked by their type hints before anything is done.

Paths, functions, switches, choices, texts and objects of a class need no line of their own then. Numbers have limits,
which the function checks, and so do tensors.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

from gradreg.checks.fields import conform
from gradreg.checks.scalars import Range
from gradreg.defaults import host_by_default, without_autocast

_F = TypeVar("_F", bound=Callable[..., Any])
# These are checked where they are used, with limits and by words that fit.
_ELSEWHERE = {"int", "float", "Tensor"}


def validated(function: _F) -> _F:
    """Check what is passed by the hints of the signature, first thing."""
    signature = inspect.signature(function)

    @cache
    def hints() -> dict[str, Any]:
        found = {name: _resolved(function, hint) for name, hint in function.__annotations__.items()}
        return {name: hint for name, hint in found.items() if name != "return" and not _is_checked_elsewhere(hint)}

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        try:
            given = signature.bind(*args, **keywords)
        except TypeError:
            return function(*args, **keywords)  # Python's own words for an argument that is missing, unknown or twice
        with host_by_default(), without_autocast():
            for name, value in given.arguments.items():
                _check_kind_of_tensor(name, value)
            for name, hint in hints().items():
                if name in given.arguments and signature.parameters[name].kind not in _SEVERAL:
                    given.arguments[name] = conform(name, given.arguments[name], hint)
            return function(*given.args, **given.kwargs)

    return cast(_F, checked)


def is_called_by_gradreg(depth: int = 2) -> bool:
    """Whether the caller of the function that asks is gradreg itself, which passes tensors and numbers of its own."""
    return str(sys._getframe(depth).f_globals.get("__name__")).partition(".")[0] == "gradreg"


def _check_kind_of_tensor(name: str, value: Any) -> None:
    """Refuse a tensor of a kind that no function takes, whatever else it checks."""
    torch = sys.modules.get("torch")  # without it nothing is a tensor
    if torch is not None and isinstance(value, torch.Tensor):
        from gradreg.checks.tensors import check_layout, check_width

        check_layout(name, value)
        check_width(name, value)


def _resolved(function: Callable[..., Any], hint: Any) -> Any:
    """The hint itself for its text; Any for what is imported for type checkers alone."""
    try:
        return eval(hint, function.__globals__) if isinstance(hint, str) else hint
    except NameError:
        return Any


_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_checked_elsewhere(hint: Any) -> bool:
    if get_origin(hint) is Annotated and any(isinstance(each, Range) for each in get_args(hint)):
        return False
    return any(getattr(kind, "__name__", "") in _ELSEWHERE for kind in _kinds(hint))


def _kinds(hint: Any) -> Iterator[Any]:
    if get_origin(hint) in (Union, UnionType, Annotated):
        for part in get_args(hint):
            yield from _kinds(part)
    else:
        yield get_origin(hint) or hint
