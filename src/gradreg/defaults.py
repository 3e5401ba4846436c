"""What a caller has set for all of torch: gradreg's own arithmetic does not depend on it.

gradreg makes its own tensors on the host, whatever the default device is; a model does not.

`torch.set_default_device("cuda")` would put positions, counts and random numbers of gradreg there, away from the
generators and columns that they go with. Code of the caller's still finds what the caller has set.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])
_CALLERS: ContextVar[Any] = ContextVar("callers", default=None)


def host_by_default() -> AbstractContextManager[object]:
    """Inside, tensors are made on the host unless a device is named."""
    torch = sys.modules.get("torch")  # what has not been imported has no default yet
    if torch is None or torch.compiler.is_compiling() or torch.get_default_device().type == "cpu":
        return nullcontext()
    return _by_default(torch.device("cpu"), callers=torch.get_default_device())


def without_autocast() -> AbstractContextManager[object]:
    """Inside, no operation is in lower precision than its tensors: products of matrices in norms and bounds too."""
    torch = sys.modules.get("torch")
    if torch is None or torch.compiler.is_compiling():
        return nullcontext()
    kinds = ("cpu", "cuda", "mps", "xpu", torch._C._get_privateuse1_backend_name())
    switched = ExitStack()
    for kind in kinds:
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            switched.enter_context(torch.autocast(kind, enabled=False))
    return switched


def callers_default() -> AbstractContextManager[object]:
    """Inside, tensors are made where the caller of gradreg has set: around a model or anything else of the caller's."""
    device = _CALLERS.get()
    return nullcontext() if device is None else _by_default(device, callers=None)


def on_the_host(function: _F) -> _F:
    """A function that makes its tensors there."""

    @wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        with host_by_default():
            return function(*args, **keywords)

    return cast(_F, called)


@contextmanager
def _by_default(device: Any, callers: Any) -> Iterator[None]:
    token = _CALLERS.set(callers)
    try:
        with device:
            yield
    finally:
        _CALLERS.reset(token)
