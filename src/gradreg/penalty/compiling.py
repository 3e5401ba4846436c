"""torch.compile around a whole training step: the penalty in it runs as it is written."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch

_F = TypeVar("_F", bound=Callable[..., Any])


def never_compiled(function: _F) -> _F:
    """A function that the compiler leaves alone; compiled models that it calls stay compiled.

    The compiler cannot see through a search for random generators, or a backward in the middle. It is told so where it
    reads this and not before: loading it takes seconds.
    """

    @wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **keywords)
        return function(*args, **keywords)

    return cast(_F, called)
