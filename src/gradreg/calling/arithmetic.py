"""Full precision for a while: autocast is off, also where the model itself switches it on."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock, get_ident

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
        region = _Region(get_ident())
        try:
            with _SWITCH.changed(region):
                yield
        except RuntimeError as error:
            if not (region.refused and _MIXED.search(str(error))):
                raise
            raise ModelError(
                "The model rounds its images to half precision and relies on autocast, which the penalty switches off, "
                "since bf16 keeps nothing of a difference over a small h: pass the module inside of the wrapper "
                "(model.module), set the wrapper to 32 bits, or pass autocast='keep' and a larger h."
            ) from error


@dataclass(eq=False)
class _Region:
    """Calls of one thread in which entering autocast changes nothing."""

    thread: int
    refused: bool = False


class _Switch:
    """torch has one autocast class for all threads: the first region changes it, and the last one puts it back."""

    def __init__(self) -> None:
        self._lock, self._regions = Lock(), list[_Region]()
        self._enter: Callable[[torch.autocast], object] = torch.autocast.__enter__

    @contextmanager
    def changed(self, region: _Region) -> Iterator[None]:
        """In the thread of this region, and in no other one, `torch.autocast` changes nothing."""
        with self._lock:
            if not self._regions:
                self._enter = torch.autocast.__enter__
                torch.autocast.__enter__ = lambda entered: self._entered(entered)  # type: ignore[method-assign]
            self._regions.append(region)
        try:
            yield
        finally:
            with self._lock:
                self._regions.remove(region)
                if not self._regions:
                    torch.autocast.__enter__ = self._enter  # type: ignore[method-assign]

    def _entered(self, entered: torch.autocast) -> object:
        region = self._here()
        if region is None:
            return self._enter(entered)
        wanted, entered._enabled = entered._enabled, False
        region.refused |= wanted
        try:
            return self._enter(entered)
        finally:
            entered._enabled = wanted

    def _here(self) -> _Region | None:
        with self._lock:
            found = [region for region in self._regions if region.thread == get_ident()]
            # What a backward computes again may be in a thread of autograd's, for any of the regions.
            computed_again = torch._C._current_graph_task_id() != -1
            return next(iter(found or (self._regions if computed_again else ())), None)


_SWITCH = _Switch()
