"""What the trial of a first step is remembered by: whatever it depends on, so that nothing else is trusted with it."""

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import gradreg
from gradreg import GradregWarning, PrecisionError, regularized_loss
from gradreg.calling.known import Known, known

X = torch.rand(32, 1, 28, 28, generator=torch.Generator().manual_seed(0))
Y = torch.randint(10, (32,), generator=torch.Generator().manual_seed(1))


class Low(nn.Module):
    """bfloat16 inside, single precision outside."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = nn.Linear(784, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(linear(x.flatten(1).bfloat16(), self.a.weight.bfloat16(), self.a.bias.bfloat16()))
        return linear(hidden, self.b.weight.bfloat16(), self.b.bias.bfloat16()).float()


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.Tanh(), nn.Linear(16, 10))


def rounded(z: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(z, y, reduction="none").bfloat16().float()


Case = tuple[Callable[[], nn.Module], dict[str, Any], dict[str, Any]]
LOOSE: dict[str, Any] = {"threat": "linf", "eps": 0.1, "h": 0.05}
CASES: dict[str, Case] = {
    "another norm": (Low, LOOSE, {"threat": "l1", "eps": 0.1, "h": 0.05}),
    "the paper's scale": (Low, LOOSE, {"threat": "linf", "lam": 0.1, "h": 0.03}),
    "a shorter h per image": (
        Low,
        {"threat": "linf", "eps": 0.1, "h": torch.full((32,), 0.1)},
        {"threat": "linf", "eps": 0.1, "h": torch.full((32,), 1e-4)},
    ),
    "a shorter h as a tensor": (Low, LOOSE, {"threat": "linf", "eps": 0.1, "h": torch.tensor(1e-4)}),
    "another criterion": (network, {"lam": 0.1}, {"lam": 0.1, "criterion": rounded}),
    "another output": (network, {"lam": 0.1}, {"lam": 0.1, "output": lambda z: z.bfloat16().float()}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_alone_is_refused_after_something_else(name: str) -> None:
    made, first, second = CASES[name]
    with pytest.raises(PrecisionError):
        regularized_loss(made(), X, Y, **second)
    model = made()
    regularized_loss(model, X, Y, **first)
    with pytest.raises(PrecisionError):
        regularized_loss(model, X, Y, **second)


def test_a_criterion_and_a_norm_made_anew_in_every_step_are_tried_once() -> None:
    """A trial at every step would double its costs."""

    class Own(nn.Module):
        def forward(self, z: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(z, y, reduction="none")

    made: list[Callable[[], dict[str, Any]]] = [
        lambda: {"criterion": nn.CrossEntropyLoss(reduction="none")},
        lambda: {"criterion": lambda z, y: cross_entropy(z, y, reduction="none")},
        lambda: {"criterion": Own(), "output": lambda z: 1 * z},
        lambda: {"threat": gradreg.norms.L2()},
    ]
    for each in made:
        model, counts = network(), []
        for _ in range(4):
            with FlopCounterMode(display=False) as counter:
                regularized_loss(model, X, Y, lam=0.1, **each()).backward()
            counts.append(counter.get_total_flops())
        assert counts[0] > 1.5 * counts[1]
        assert counts[1:] == [counts[1]] * 3


def test_an_h_on_an_accelerator_is_looked_at_in_the_steps_that_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradreg.calling.known.on_host", lambda _: False)
    record, long, short = Known(), torch.tensor([0.2, 0.1]), torch.tensor([0.2, 0.01])
    assert record.due("kind", long) == (True, True)
    record.trust("kind", long)
    assert [record.due("kind", short) for _ in range(8)] == [(False, False)] * 8
    assert record.due("kind", short) == (True, True)


def test_what_is_known_of_a_function_s_model_is_forgotten_with_it() -> None:
    """A new model may get the address of a deleted one, and is another one all the same."""

    def asks(model: nn.Module) -> Callable[[Tensor], Any]:
        return lambda z: model(z)

    gone, other = nn.Linear(2, 2), nn.Linear(2, 2)
    first = known(asks(gone), [gone])
    assert known(asks(gone), [gone]) is first
    assert known(asks(other), [other]) is not first
    record = ref(first)
    del gone, first
    gc.collect()
    assert record() is None


class Counts(nn.Module):
    """A criterion that moves in every call: a count in a buffer, and an average in an attribute."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.average = 1.0

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(z, y, reduction="none")
        found = losses / self.average
        self.calls += 1
        self.average = 0.9 * self.average + 0.1 * float(losses.detach().mean())
        return found


class PlainCounts:
    """The same in an object that is no module."""

    def __init__(self) -> None:
        self.calls, self.average = torch.zeros((), dtype=torch.int64), 1.0

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(z, y, reduction="none")
        found = losses / self.average
        self.calls = self.calls + 1
        self.average = 0.9 * self.average + 0.1 * float(losses.detach().mean())
        return found


@pytest.mark.parametrize("kind", [Counts, PlainCounts])
@pytest.mark.parametrize("graphs", [1, 2])
def test_what_a_criterion_keeps_moves_once_per_step(kind: type[Counts] | type[PlainCounts], graphs: Any) -> None:
    model, criterion, plain = network().double(), kind(), kind()
    x = X.double()
    for step in range(12):
        out = regularized_loss(model, x, Y, lam=0.1, criterion=criterion, graphs=graphs, h=1e-4)
        losses = plain(model(x), Y)
        assert int(criterion.calls) == step + 1
        assert criterion.average == pytest.approx(plain.average, rel=1e-12)
        assert_close(out.clean, losses.mean().detach())
        assert_close(out.slope, out.grad_norm, rtol=1e-3, atol=1e-8)


def test_a_criterion_s_own_generator_is_replayed() -> None:
    class Noisy:
        def __init__(self) -> None:
            self.dice = torch.Generator().manual_seed(0)

        def __call__(self, z: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(z * (1 + 0.1 * torch.rand(z.shape, generator=self.dice)), y, reduction="none")

    criterion, model = Noisy(), network()
    for _ in range(3):
        out = regularized_loss(model, X, Y, lam=0.1, criterion=criterion)
        assert_close(out.slope, out.grad_norm, rtol=0.02, atol=1e-3)
    expected = torch.Generator().manual_seed(0)
    for _ in range(3):
        torch.rand(32, 10, generator=expected)
    assert torch.equal(criterion.dice.get_state(), expected.get_state())


class _Scaled(torch.autograd.Function):
    """The images as they are, and gradients times a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None]:
        return ctx.factor * outer, None


class Altered(nn.Module):
    def __init__(self, first: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.network = first, network()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(self.first(x))
        return found


@pytest.mark.parametrize("how", [{"lam": 0.1}, {"threat": "linf", "eps": 0.03}, {"eps": 0.1, "graphs": 2}], ids=str)
@pytest.mark.parametrize("factor", [-1.0, 100.0, 0.01])
def test_gradients_that_are_changed_on_their_way_to_the_images_are_told(factor: float, how: dict[str, Any]) -> None:
    """By reversal, scaling or a hook: the slope that is trained on has another sign or size than its gradient."""
    with pytest.warns(GradregWarning, match="loss rises .* times as fast as that gradient says"):
        regularized_loss(Altered(lambda x: _Scaled.apply(x, factor)), X, Y, **how)  # type: ignore[no-untyped-call]
    regularized_loss(Altered(lambda x: _Scaled.apply(x, 1.0)), X, Y, **how)  # type: ignore[no-untyped-call]


def test_a_penalty_of_nothing_is_told_unless_the_model_says_nothing_yet() -> None:
    """Images that are rounded have no gradient; neither have those of a model whose last layer begins at zero."""
    with pytest.warns(GradregWarning, match="gradient at all 32 images is exactly zero"):
        assert regularized_loss(Altered(lambda x: (255 * x).round() / 255), X, Y, eps=0.1).penalty == 0
    begun = network()
    nn.init.zeros_(begun.get_parameter("3.weight"))
    assert regularized_loss(begun, X, Y, eps=0.1).penalty == 0
