"""A step moves what a model keeps once, as plain training does, and both passes of a difference are of one function."""

import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from stateful import MIXING, STATEFUL, Counter, MovingAverage, Observed, stateful
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from gradreg import GradregWarning, regularized_loss
from gradreg.calling.contents import contents
from gradreg.calling.known import _KNOWN
from gradreg.losses import cross_entropy

X = torch.rand(6, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
Y = torch.arange(6) % 4


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    before = np.random.get_state(), random.getstate()
    np.random.seed(3)
    random.seed(3)
    yield
    np.random.set_state(before[0])
    random.setstate(before[1])


def traces(model: Any) -> dict[str, Any]:
    """Everything that a forward could have left: buffers, attributes, streams."""
    modules, generators = contents(model)
    kept: dict[str, Any] = {f"{i}.{name}": value for i, m in enumerate(modules) for name, value in m._buffers.items()}
    kept |= {
        f"{i}.{name}": _plain(vars(m)[name])
        for i, m in enumerate(modules)
        for name in ("calls", "memory")
        if name in vars(m)
    }
    kept |= {name: str(vars(model)[name]) for name in ("array", "names", "calls") if name in vars(model)}
    kept |= {f"source {i}": _state(source) for i, source in enumerate(generators)}
    kept |= {"torch": torch.get_rng_state(), "numpy": str(np.random.get_state()), "python": random.getstate()}
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in kept.items()}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, list) else value


def _state(source: Any) -> Any:
    return source.get_state() if isinstance(source, torch.Generator) else str(source.bit_generator.state)


def pair(name: str) -> tuple[Any, Any]:
    """Two models with the same weights and the same state, and the streams where the first call will find them."""
    torch.manual_seed(0)
    first = stateful(name)
    torch.manual_seed(0)
    return first, stateful(name)


WAYS: list[dict[str, Any]] = [
    {"lam": 1.0},
    {"eps": 0.1, "h": 1e-4},
    {"lam": 1.0, "order": 2},
    {"lam": 1.0, "graphs": 2},
    {"lam": 1.0, "h": torch.full((6,), 1e-4, dtype=torch.float64)},
]


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_both_passes_are_of_one_function_and_state_moves_once_per_step(name: str, how: dict[str, Any]) -> None:
    model, twin = pair(name)
    streams = torch.get_rng_state(), np.random.get_state(), random.getstate()
    for _ in range(3):
        out = regularized_loss(model, X, Y, **{"h": 1e-4, **how})
        out.loss.backward()
        if name not in MIXING:
            assert_close(out.slope, out.grad_norm, rtol=1e-3, atol=1e-6)
    found = traces(model)
    torch.set_rng_state(streams[0])
    np.random.set_state(streams[1])
    random.setstate(streams[2])
    for _ in range(3):
        cross_entropy(twin(X), Y)
    expected = traces(twin)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value) if isinstance(value, Tensor) else found[key] == value, key


@pytest.mark.parametrize("name", [name for name in STATEFUL if name not in MIXING])
@pytest.mark.parametrize("graphs", [1, 2])
def test_the_gradients_are_those_of_the_function_of_that_step(name: str, graphs: Any) -> None:
    """Against double backprop, which makes one pass only."""
    model, twin = pair(name)
    streams = torch.get_rng_state(), np.random.get_state(), random.getstate()
    regularized_loss(model, X, Y, lam=1.0, h=1e-5, order=2, graphs=graphs).loss.backward()
    torch.set_rng_state(streams[0])
    np.random.set_state(streams[1])
    random.setstate(streams[2])
    regularized_loss(twin, X, Y, lam=1.0, method="double-backprop").loss.backward()
    for found, exact in zip(model.parameters(), twin.parameters(), strict=True):
        assert_close(found.grad, exact.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_part_of_the_batch_moves_nothing_twice(name: str) -> None:
    model, twin = pair(name)
    regularized_loss(model, X, Y, lam=1.0, h=1e-4, fraction=0.5, step=1).loss.backward()
    cross_entropy(twin(X), Y)
    found, expected = traces(model), traces(twin)
    counts = [key for key in expected if key.endswith(("calls", "num_batches_tracked", "weight_u", "._u", "one"))]
    for key in counts:
        assert torch.as_tensor(found[key] == expected[key]).all(), key


def test_a_buffer_that_begins_to_move_later_is_protected_from_the_first_time_on() -> None:
    class Late(Counter):
        def before(self, x: Tensor) -> Tensor:
            return super().before(x) if self.started else x

        started = False

    model = Late().double()
    for step in range(8):
        model.started = step > 3
        regularized_loss(model, X, Y, lam=1.0)
        assert int(model.calls) == max(0, step - 3)


MEAN, VAR = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)


def functional(kind: str) -> tuple[Any, list[Tensor]]:
    """A model that is a function, with its running statistics in a dictionary, in closures or in globals."""
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 4)).double()
    weights = {name: weight.detach().requires_grad_() for name, weight in net.named_parameters()}
    held = {name: buffer.clone() for name, buffer in net.named_buffers()}
    mean, var = MEAN.clone(), VAR.clone()
    found = {
        "a dictionary": (lambda x: torch.func.functional_call(net, (weights, held), (x,)), list(held.values())),
        "closures": (lambda x: net[1:](F.batch_norm(x, mean, var, training=True)), [mean, var]),
        "globals": (lambda x: net[1:](F.batch_norm(x, MEAN, VAR, training=True)), [MEAN, VAR]),
    }
    return found[kind]


class Cools(nn.Module):
    """Counts its passes, and halves a temperature at the fourth."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(48, 4).double()
        self.passes, self.temperature = 0, 1.0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.passes == 4:
            self.temperature /= 2
        found: Tensor = self.layer(x.flatten(1)) / self.temperature
        return found


@pytest.mark.parametrize("graphs", [1, 2])
def test_what_a_count_changes_later_moves_once_too(graphs: Any) -> None:
    """Of the first steps nothing is learned about it; it halved twice, and the difference was of two functions."""
    model = Cools()
    for step in range(1, 7):
        out = regularized_loss(model, X, Y, lam=0.1, h=1e-6, graphs=graphs)
        assert (model.passes, model.temperature) == (step, 1.0 if step < 4 else 0.5)
        assert_close(out.slope, out.grad_norm, rtol=1e-3, atol=0)


@pytest.mark.parametrize("how", [{}, {"graphs": 2}, {"method": "double-backprop"}], ids=["one", "two", "exact"])
@pytest.mark.parametrize("kind", ["a dictionary", "closures", "globals"])
def test_buffers_that_a_function_refers_to_move_once(kind: str, how: dict[str, Any]) -> None:
    model, held = functional(kind)
    before = [buffer.clone() for buffer in held]
    regularized_loss(model, X, Y, threat="l2", eps=0.1, **how).loss.backward()
    after = [buffer.clone() for buffer in held]
    for buffer, value in zip(held, before, strict=True):
        buffer.copy_(value)
    with torch.no_grad():
        model(X)
    for buffer, value in zip(held, after, strict=True):
        assert_close(buffer, value)


def test_modes_are_known_apart() -> None:
    """Nothing moves in eval mode, or frozen; that says nothing about train mode."""
    model = stateful("batch norm")
    regularized_loss(model.eval(), X, Y, lam=1.0)
    regularized_loss(model.train(), X, Y, lam=1.0, bn="frozen")
    regularized_loss(model.train(), X, Y, lam=1.0)
    assert int(model[1].num_batches_tracked) == 1
    assert_close(model[1].running_mean, 0.1 * model[0](X).mean((0, 2, 3)))


def test_what_is_known_of_a_model_does_not_keep_it_alive() -> None:
    model = Counter().double()
    regularized_loss(model, X, Y, lam=1.0)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    net = Observed().double()
    regularized_loss(lambda x: net(x), X, Y, lam=1.0)
    assert net in _KNOWN, "what is known of a function is kept with its model"


def test_state_comes_back_when_the_model_raises() -> None:
    model, calls = MovingAverage().double(), 0

    def breaks_later(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of memory")

    model.net.register_forward_pre_hook(breaks_later)
    buffer = model.mean
    with pytest.raises(RuntimeError, match="out of memory"):
        regularized_loss(model, X, Y, lam=1.0)
    assert model.mean is buffer
    reference = MovingAverage().double()
    reference.before(X)
    assert torch.equal(model.mean, reference.mean)


@pytest.mark.parametrize("name", ["spectral norm", "spectral norm, parametrised", "instance norm", "batch norm"])
def test_compiled_models_are_compiled_once_and_move_once(name: str) -> None:
    model, twin = pair(name)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter)
    made = []
    for _ in range(3):
        out = regularized_loss(compiled, X, Y, lam=1.0, h=1e-4)
        out.loss.backward()
        made.append(counter.frame_count)
        cross_entropy(twin(X), Y)
    assert made[0] == made[-1]
    for (key, value), expected in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        assert_close(value, expected, msg=key)


class Follows(nn.Module):
    """Keeps a slow copy of a network in weights, as momentum encoders do, or cuts weights to a limit."""

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.net, self.slow, self.decay = nn.Linear(48, 4), nn.Linear(48, 4), decay

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                slow.mul_(self.decay).add_((1 - self.decay) * fast).clamp_(-1, 1)
        logits: Tensor = self.net(x.flatten(1))
        return logits


def test_weights_that_every_pass_moves_are_said_to_move_more_often() -> None:
    model = Follows(0.9).double()
    with pytest.warns(GradregWarning, match="changes its own weights in every forward"):
        regularized_loss(model, X, Y, lam=0.1)
    regularized_loss(Follows(1.0).double(), X, Y, lam=0.1)  # written to, and the same
