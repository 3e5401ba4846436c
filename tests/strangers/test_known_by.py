"""What a model is known by where work is resumed: also what its weights do not say."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg.attacks import EpsilonOracle
from gradreg.errors import ConfigError, ModelError

X = 0.3 + 0.4 * torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % 4


def linear(seed: int = 1) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(48, 4)).eval()


class Tempered(nn.Module):
    """A user's wrapper, with a number and a tensor that are in no state_dict."""

    def __init__(self, temperature: float = 1, shift: float = 0) -> None:
        super().__init__()
        self.net, self.temperature, self.shift = linear(), temperature, torch.full((4,), shift)
        self.shift[0] *= 2
        self.calls = 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.net(x) / self.temperature + self.shift
        self.last = logits
        return logits


def hooked(factor: float) -> nn.Module:
    model = linear()
    model.register_forward_hook(lambda module, inputs, output: factor * output)
    return model


def replaced(factor: float) -> nn.Module:
    model = linear()
    inner = model.forward
    model.forward = lambda x: factor * inner(x)
    return model


def frozen(seed: int) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, which is to give TorchScript up
        made: nn.Module = torch.jit.freeze(torch.jit.trace(linear(seed), X))
        return made


def quantised(seed: int) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, which is to give it up
        made: nn.Module = torch.ao.quantization.quantize_dynamic(linear(seed)).eval()
        return made


def chosen(place: int) -> gradreg.Classifier:
    return gradreg.Classifier(lambda x: (linear(1)(x), linear(2)(x)), output=lambda both: both[place])


DIFFERENT: dict[str, Callable[[Any], Any]] = {
    "a number of its own": Tempered,
    "a tensor of its own": lambda shift: Tempered(1, shift),
    "a hook": hooked,
    "another forward": replaced,
    "frozen TorchScript": frozen,
    "quantised layers": quantised,
    "output": lambda place: chosen(place - 1),
}


def key(model: Any, x: Tensor = X) -> str:
    return gradreg.Classifier.of(model).fingerprint(x)


@pytest.mark.parametrize("kind", DIFFERENT)
def test_models_that_differ_in_what_weights_do_not_say(kind: str) -> None:
    make = DIFFERENT[kind]
    assert key(make(1)) == key(make(1))
    assert key(make(1)) != key(make(2))


@pytest.mark.parametrize("kind", ["a number of its own", "output"])
def test_work_is_not_resumed_with_one_of_these(kind: str, tmp_path: Path) -> None:
    make = DIFFERENT[kind]
    gradreg.certify(make(1), X, sigma=0.1, n=100, state=tmp_path / "state")
    gradreg.certify(make(1), X, sigma=0.1, n=100, state=tmp_path / "state")
    with pytest.raises(ConfigError, match="begun with other weights"):
        gradreg.certify(make(2), X, sigma=0.1, n=100, state=tmp_path / "state")


def test_lambdas_in_one_place_are_told_apart_by_their_code() -> None:
    """Where their answers are the same to all digits that count."""
    exact, nearly, other = lambda z: z, lambda z: z * 1.00001, lambda z: z * 1.00002
    keys = {key(gradreg.Classifier(linear(), output=each)) for each in (exact, nearly, other)}
    assert len(keys) == 3


def test_what_a_forward_moves_is_no_other_model() -> None:
    model = Tempered()
    before = key(model)
    gradreg.attack(model, X, Y, attacks=["deepfool"])
    assert key(model) == before


def test_the_order_of_sums_is_no_other_model() -> None:
    assert key(Tempered()) == key(Tempered(1 + 1e-6))


def test_a_random_model_is_known_by_its_weights() -> None:
    def noisy(x: Tensor) -> Tensor:
        found: Tensor = linear()(x + torch.randn_like(x))
        return found

    assert key(noisy) == key(noisy)


def test_train_mode_is_refused_before_statistics_move(tmp_path: Path) -> None:
    model = Tempered()
    model.net.insert(0, nn.BatchNorm2d(3))  # type: ignore[operator]
    model.train()
    with pytest.raises(ModelError, match="in train mode"):
        gradreg.attack(model, X, Y, resume=tmp_path / "pool")
    assert model.calls == 0


def test_layers_of_torch_are_known_by_their_weights_alone() -> None:
    """So that work which was begun with another version of gradreg can be resumed."""
    assert key(linear()) == key(linear(), X[:0])
    assert key(Tempered()).split()[0] == key(Tempered(2), X[:0])


def test_an_oracle_does_not_remember_the_answers_of_another_temperature() -> None:
    model, oracle = Tempered(), EpsilonOracle("l2", attacks=["deepfool"])
    y = model(X).argmax(1)
    before = oracle.critical(model, X, y)
    model.shift = torch.tensor([0.0, 0.5, 0.0, 0.0])
    assert not torch.equal(oracle.critical(model, X, y), before)
