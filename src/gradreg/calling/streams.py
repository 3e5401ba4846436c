"""Random streams that a model can draw from: torch's, NumPy's, Python's, and generators of its own."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, local
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradreg.errors import ModelError

Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


@dataclass(frozen=True)
class RandomState:
    """The streams that a model on `device` can draw from, as they were at one moment."""

    device: torch.device
    host: Tensor
    accelerator: Tensor | None
    others: tuple[tuple[Generator, Any], ...]
    """Generators besides torch's global ones, with their states."""
    by_others: int
    """How often other threads had repeated draws from torch's streams, which are one for all threads."""

    @classmethod
    def now(cls, device: torch.device, others: Sequence[Generator] = ()) -> "RandomState":
        """Their current states; `others` are generators besides torch's global ones, as `global_streams`."""
        on_host = device.type in ("cpu", "meta")
        state = None if on_host else torch.get_device_module(device).get_rng_state(device)
        kept = tuple((other, _state(other)) for other in others)
        return cls(device, torch.get_rng_state(), state, kept, _REPLAYS.by_others())

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Repeat the draws made since that moment; afterwards the streams continue where they were."""
        resume = RandomState.now(self.device, [other for other, _ in self.others])
        self._restore()
        try:
            yield
            if _REPLAYS.by_others() != self.by_others and self.moved():
                raise ModelError(
                    "Another thread repeated random draws at the same time, and torch has one random stream for all "
                    "threads: what draws, as a model with dropout does, needs a process of its own, or one thread."
                )
        finally:
            _REPLAYS.add()
            resume._restore()

    def moved(self) -> bool:
        """Whether anything was drawn since that moment."""
        now = RandomState.now(self.device, [other for other, _ in self.others])
        pairs = [(self.host, now.host), (self.accelerator, now.accelerator)]
        return not all(_same(before, after) for before, after in pairs) or bool(self.drawn_from())

    def drawn_from(self) -> list[Generator]:
        """Those of the other generators that were drawn from since that moment."""
        return [other for other, before in self.others if not _same(before, _state(other))]

    def _restore(self) -> None:
        torch.set_rng_state(self.host)
        if self.accelerator is not None:
            torch.get_device_module(self.device).set_rng_state(self.accelerator, self.device)
        for other, state in self.others:
            if isinstance(other, np.random.Generator):
                other.bit_generator.state = state
            elif isinstance(other, random.Random):
                other.setstate(state)
            else:
                other.set_state(state)


class _Replays:
    """How often each thread has repeated draws."""

    def __init__(self) -> None:
        self._lock, self._total, self._mine = Lock(), 0, local()

    def add(self) -> None:
        """One more, by this thread."""
        with self._lock:
            self._total += 1
            self._mine.count = getattr(self._mine, "count", 0) + 1

    def by_others(self) -> int:
        """Those of all other threads."""
        with self._lock:
            return int(self._total - getattr(self._mine, "count", 0))


_REPLAYS = _Replays()


def global_streams() -> list[Generator]:
    """NumPy's and Python's global generators: reading them takes as long as a small layer."""
    return [np.random.mtrand._rand, random._inst]


def _state(generator: Generator) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return all(_same(value, second[key]) for key, value in first.items())
    if isinstance(first, tuple):
        return all(map(_same, first, second))
    return bool(np.array_equal(first, second)) if isinstance(first, np.ndarray) else bool(first == second)
