"""Full precision for a while: autocast is off, also where the model itself switches it on."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def full_precision(device_type: str, *, compiled: bool) -> Iterator[None]:
    """No autocast, from outside or from inside of a model.

    Wrappers such as Accelerate's enter `torch.autocast` in the model's forward, where switching it off around the call
    does nothing. So entering it is made to change nothing. In a `compiled` model it is part of the code and stays.
    """
    enabled = torch.is_autocast_enabled(device_type)
    with torch.autocast(device_type, enabled=False) if enabled else nullcontext():
        if compiled:
            yield
            return
        original = torch.autocast.__enter__

        def enter(self: torch.autocast) -> object:
            wanted, self._enabled = self._enabled, False
            try:
                return original(self)  # type: ignore[no-untyped-call]
            finally:
                self._enabled = wanted

        torch.autocast.__enter__ = enter  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.autocast.__enter__ = original  # type: ignore[method-assign]
