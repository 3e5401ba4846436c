"""Models whose forward leaves traces. Both passes of a difference must be of one function and move it once."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm


class Around(nn.Module):
    """A small smooth network with something before it that keeps state or draws."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.GELU(), nn.Linear(16, 4))

    def before(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(self.before(x))
        return logits


class Counter(Around):
    """A buffer that counts calls and a temperature that falls with them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    calls: Tensor

    def before(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 0.9**self.calls


class PlainCounter(Around):
    """The same with a number of Python, as many schedules do."""

    calls = 0

    def before(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 0.9**self.calls


class Memory(Around):
    """A tensor that is not registered, made in the first call and replaced in every one."""

    memory: Tensor

    def before(self, x: Tensor) -> Tensor:
        mean = x.detach().mean(0)
        self.memory = mean if not hasattr(self, "memory") else 0.5 * self.memory + 0.5 * mean
        return x - self.memory


class MovingAverage(Around):
    """Writes a batch's mean into a buffer and multiplies by that very buffer, which autograd saves."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(3, 1, 1))

    mean: Tensor

    def before(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.5).add_(0.5 * x.detach().mean((0, 2, 3), keepdim=True)[0])
        return x * self.mean


class OwnGenerator(Around):
    """Noise from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.source = torch.Generator().manual_seed(5)

    def before(self, x: Tensor) -> Tensor:
        return x + 0.3 * torch.randn(x.shape, generator=self.source, dtype=x.dtype)


class OwnNumpy(Around):
    """Noise from NumPy, by a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.source = np.random.default_rng(5)

    def before(self, x: Tensor) -> Tensor:
        return x + 0.3 * torch.from_numpy(self.source.standard_normal(x.shape)).to(x.dtype)


class GlobalNumpy(Around):
    """Noise from NumPy's global stream."""

    def before(self, x: Tensor) -> Tensor:
        return x + 0.3 * torch.from_numpy(np.random.standard_normal(x.shape)).to(x.dtype)


class GlobalPython(Around):
    """Drops its noise at random, by Python's stream."""

    def before(self, x: Tensor) -> Tensor:
        return x * random.random()


class Observed(Around):
    """An observer of quantisation-aware training, which only looks."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))

    largest: Tensor

    def before(self, x: Tensor) -> Tensor:
        self.largest.copy_(torch.maximum(self.largest, x.detach().abs().max()))
        return x


class Tied(Around):
    """One buffer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.ones((), dtype=torch.float64))
        self.register_buffer("two", self.one)

    one: Tensor
    two: Tensor

    def before(self, x: Tensor) -> Tensor:
        self.one.mul_(0.9)
        return x * self.two


class InAList(Around):
    """A count, a tensor and a dictionary in a list, which a hook of a closure shares."""

    def __init__(self) -> None:
        super().__init__()
        seen = self.memory = [0, torch.ones(3, 1, 1, dtype=torch.float64), {"largest": 0.0}]
        self.net.register_forward_hook(lambda net, given, out: seen.append(out.detach().mean()))

    memory: list[Any]

    def forward(self, x: Tensor) -> Tensor:
        self.memory[0] += 1
        self.memory[1].mul_(0.9)
        self.memory[2]["largest"] = max(self.memory[2]["largest"], float(x.detach().max()))
        logits = super().forward(x * self.memory[1])
        left: Tensor = self.memory.pop()  # by the hook
        return logits + left


class InATuple(Around):
    """A tuple that every call replaces, a queue, a set and an array."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.calls = (1.0, "calls"), deque([1.0], maxlen=2)
        self.array, self.names = np.ones(3), {0}

    def before(self, x: Tensor) -> Tensor:
        self.memory = (0.9 * self.memory[0], "calls")
        self.calls.append(0.9 * self.calls[-1])
        self.array *= 0.9
        self.names.add(len(self.names))
        return x * self.memory[0] * self.calls[-1] * float(self.array.mean()) / len(self.names)


@dataclass
class Meter:
    """As training loops have them."""

    calls: int = 0
    means: list[float] = field(default_factory=list)

    def update(self, x: Tensor) -> float:
        self.calls += 1
        self.means.append(float(x.detach().mean()))
        return float(0.9**self.calls)


class InAnObject(Around):
    """State of a plain object that a module holds."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Meter()

    def before(self, x: Tensor) -> Tensor:
        return x * self.memory.update(x)


class NoModule:
    """A callable object around a network, with state of its own."""

    def __init__(self) -> None:
        self.net, self.calls = Around().double(), 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.net(x * 0.9**self.calls)
        return logits

    def parameters(self) -> Any:
        return self.net.parameters()


def _normed(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), layer, nn.GELU(), nn.Flatten(), nn.Linear(64, 4))


def _spectral(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), wrap(nn.Linear(48, 16)), nn.GELU(), wrap(nn.Linear(16, 4)))


def _lambda() -> Any:
    net = _normed(nn.BatchNorm2d(4)).double()
    return lambda x: (net(x), None)[0]


STATEFUL: dict[str, Callable[[], Any]] = {
    "spectral norm": lambda: _spectral(spectral_norm),
    "spectral norm, parametrised": lambda: _spectral(parametrizations.spectral_norm),
    "batch norm": lambda: _normed(nn.BatchNorm2d(4)),
    "instance norm": lambda: _normed(nn.InstanceNorm2d(4, track_running_stats=True)),
    "batch norm behind a function": _lambda,
    "counter": Counter,
    "plain counter": PlainCounter,
    "memory": Memory,
    "moving average": MovingAverage,
    "own generator": OwnGenerator,
    "own numpy": OwnNumpy,
    "global numpy": GlobalNumpy,
    "global python": GlobalPython,
    "observed": Observed,
    "in a list": InAList,
    "in a tuple": InATuple,
    "in an object": InAnObject,
    "no module": NoModule,
    "tied": Tied,
}


# Their state depends on the whole batch, so images move each other's losses: a slope is not of one image alone.
MIXING = ("batch norm", "batch norm behind a function", "memory", "moving average")


def stateful(name: str) -> Any:
    """The model of that name in double precision and train mode."""
    model = STATEFUL[name]()
    if isinstance(model, Tied):
        model.net.double()  # all of it would be cast buffer by buffer, and they would part
        return model
    return model.double() if isinstance(model, nn.Module) else model
