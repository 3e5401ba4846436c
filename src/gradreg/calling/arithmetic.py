"""Full precision for a while: autocast is off, also where the model itself switches it on."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from gradreg.errors import ModelError

# What torch's operations say of two dtypes that autocast would have made one.
_MIXED = re.compile(r"(same|expected).*d?type|type.*should be the same", re.IGNORECASE)


def outside_autocast(device_type: str) -> AbstractContextManager[object]:
    """No autocast from outside; what a model switches on itself stays."""
    known = torch.amp.is_autocast_available(device_type)  # not for "meta", say
    inside = known and torch.is_autocast_enabled(device_type)
    return torch.autocast(device_type, enabled=False) if inside else nullcontext()


@contextmanager
def full_precision(device_type: str, *, compiled: bool) -> Iterator[None]:
    """No autocast, from outside or from inside of a model.

    Wrappers such as Accelerate's enter `torch.autocast` in the model's forward, where switching it off around the call
    does nothing. So entering it is made to change nothing. In a `compiled` model it is part of the code and stays.
    """
    with outside_autocast(device_type):
        if compiled:
            yield
            return
        original, refused = torch.autocast.__enter__, False

        def enter(self: torch.autocast) -> object:
            nonlocal refused
            wanted, self._enabled = self._enabled, False
            refused |= wanted
            try:
                return original(self)  # type: ignore[no-untyped-call]
            finally:
                self._enabled = wanted

        torch.autocast.__enter__ = enter  # type: ignore[method-assign]
        try:
            yield
        except RuntimeError as error:
            if not (refused and _MIXED.search(str(error))):
                raise
            raise ModelError(
                "The model rounds its images to half precision and relies on autocast, which the penalty switches off, "
                "since bf16 keeps nothing of a difference over a small h: pass the module inside of the wrapper "
                "(model.module), set the wrapper to 32 bits, or pass autocast='keep' and a larger h."
            ) from error
        finally:
            torch.autocast.__enter__ = original  # type: ignore[method-assign]
