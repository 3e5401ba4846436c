"""Random streams that a model can draw from: torch's, NumPy's, Python's, and generators of its own."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

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

    @classmethod
    def now(cls, device: torch.device, others: Sequence[Generator] = ()) -> "RandomState":
        """Their current states; `others` are generators besides torch's global ones, as `global_streams`."""
        on_host = device.type in ("cpu", "meta")
        state = None if on_host else torch.get_device_module(device).get_rng_state(device)
        return cls(device, torch.get_rng_state(), state, tuple((other, _state(other)) for other in others))

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Repeat the draws made since that moment; afterwards the streams continue where they were."""
        resume = RandomState.now(self.device, [other for other, _ in self.others])
        self._restore()
        try:
            yield
        finally:
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
