"""Buffers that hold no values, or that no file can hold: one sentence before any work, or the answer without them."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg.errors import ConfigError, ModelError

X = 0.3 + 0.4 * torch.rand(8, 3, 4, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(8) % 4
CALLS: dict[str, Callable[[nn.Module], Any]] = {
    "attack": lambda model: gradreg.attack(model, X, Y, attacks=["deepfool"]).distance,
    "certify": lambda model: gradreg.certify(model, X, sigma=0.1, n=100).radius,
    "diagnose": lambda model: gradreg.diagnose(model, X, Y, eps=0.1),
    "evaluate": lambda model: _evaluate(model).wrong,
    "inspect_image": lambda model: gradreg.inspect_image(model, X[0], attacks="deepfool", samples=100).margin,
    "fit": lambda model: gradreg.fit(model, (X, Y), held_out=4, epochs=1, batch_size=4).metrics[0]["loss"],
}


class Holding(nn.Module):
    """A linear model with one more buffer, which it may use."""

    held: Tensor

    def __init__(self, held: Tensor, *, uses: bool = False, persistent: bool = True) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.layer = nn.Linear(48, 4)
        self.register_buffer("held", held, persistent=persistent)
        self.uses, self.asked = uses, 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        logits: Tensor = self.layer(x.flatten(1))
        return logits + self.held if self.uses else logits


def _evaluate(model: nn.Module, **options: Any) -> gradreg.Evaluation:
    return gradreg.evaluate(model, (X, Y), threat="l2", attacks="deepfool", diagnosis=False, **options)


def odd(kind: str) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of prototypes and of what it is about to give up
        return {
            "quantised": lambda: torch.quantize_per_tensor(torch.rand(4), 0.1, 0, torch.qint8),
            "sparse": lambda: torch.eye(4).to_sparse(),
            "sparse by rows": lambda: torch.eye(4).to_sparse_csr(),
            "complex": lambda: torch.ones(4, dtype=torch.complex128),
        }[kind]()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_without_values_is_refused_before_any_forward(call: str, persistent: bool) -> None:
    model = Holding(torch.zeros(4, device="meta"), persistent=persistent)
    with pytest.raises(ModelError, match=r"has 'held' \(Holding\) on the meta device, where tensors have no values"):
        CALLS[call](model)
    assert model.asked == 0


def test_a_penalty_that_needs_it_says_the_same() -> None:
    with pytest.raises(ModelError, match="has 'held'"):
        gradreg.regularized_loss(Holding(torch.zeros(4, device="meta"), uses=True), X, Y, eps=0.1)


@pytest.mark.parametrize("kind", ["quantised", "sparse", "sparse by rows", "complex"])
def test_a_buffer_that_no_file_holds(kind: str) -> None:
    model, plain = Holding(odd(kind)), Holding(torch.zeros(4))
    with pytest.raises(ConfigError, match=r"'held' must be dense and of a type that safetensors has; got .*persistent"):
        CALLS["fit"](model)
    assert model.asked == 0
    assert CALLS["fit"](Holding(odd(kind), persistent=False)) == CALLS["fit"](Holding(torch.zeros(4)))
    for call in ("certify", "evaluate"):
        assert torch.equal(CALLS[call](model), CALLS[call](plain))


def test_state_that_is_no_tensor_is_refused_before_training() -> None:
    class Extra(Holding):
        def get_extra_state(self) -> object:
            return {"rounds": 3}

        def set_extra_state(self, state: object) -> None:
            pass

    model = Extra(torch.zeros(4))
    with pytest.raises(ConfigError, match="'_extra_state' must be a tensor to be saved; got dict"):
        CALLS["fit"](model)
    assert model.asked == 0


def test_a_trained_model_is_in_eval_mode() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 4))
    CALLS["fit"](model)
    assert not any(module.training for module in model.modules())
    CALLS["attack"](model)
