"""Everything that any suite returns as adversarial, asked alone in a batch of one: the model errs every time."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from alone import asked_alone, is_error
from kinds import X
from odd_models import KINDS
from public_calls import labels
from torch import Tensor

import gradreg
from gradreg.attacks.suite import SUITES
from gradreg.errors import GradregError, silenced

_THREATS = {"l2": 0.3, "linf": 0.05, "l1": 1.5}
_HOW: list[dict[str, Any]] = [
    *({"attacks": suite, "threat": threat} for suite in SUITES for threat in _THREATS),
    *({"attacks": "quick", "threat": threat, "eps": eps} for threat, eps in _THREATS.items()),
    *({"attacks": "quick", "threat": threat, "quantize": 8} for threat in _THREATS),
]


def false(make: Callable[[], Any], x: Tensor, y: Tensor, how: dict[str, Any]) -> tuple[int, int]:
    """How many adversarial images were returned, and how many are no error when asked alone."""
    found = gradreg.attack(make(), x, y, **how)
    hits = (found.success & (found.distance > 0)).nonzero().flatten().tolist()
    wrong = sum(not is_error(asked_alone(make(), found.adversarial[i]), int(y[i])) for i in hits)
    return len(hits), wrong


def shipped(name: str) -> tuple[Callable[[], Any], Tensor, Tensor]:
    """A network that comes with gradreg, on images of smooth noise, with its own answers as labels."""
    model = gradreg.load(name)
    coarse = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    x = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")
    with torch.no_grad():
        return lambda: model, x, model(x).argmax(1)


def digits() -> tuple[Callable[[], Any], Tensor, Tensor]:
    """A small convolutional network trained for a moment on bars and diagonals with noise."""
    source = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (256,), generator=source)
    bars = torch.zeros(4, 1, 8, 8)
    bars[0, :, :, 3:5], bars[1, :, 3:5], bars[2, 0], bars[3, 0] = 1, 1, torch.eye(8), torch.eye(8).flip(1)
    x = (0.6 * bars[y] + 0.4 * torch.rand(256, 1, 8, 8, generator=source)).clamp(0, 1)
    layers = (torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 4))
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return lambda: model.eval(), x[:40], y[:40]


# Of torch, about ways of building a model that it is about to give up.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _compilers() -> Iterator[None]:
    with warnings.catch_warnings():
        # Of torch, about ways of building a model that it is about to give up.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield


@pytest.mark.parametrize("how", [{"attacks": "quick"}, {"attacks": "quick", "threat": "linf", "eps": 0.05}], ids=str)
def test_of_a_trained_network(how: dict[str, Any]) -> None:
    returned, wrong = false(*digits(), how)
    assert (returned > 20, wrong) == (True, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_campaign_over_the_zoo(kind: str) -> None:
    """`pytest -s` prints the figures of docs/reliability.md."""
    returned = wrong = models = 0
    for odd in KINDS[kind].values():
        y = labels((odd.twin or odd.make)())
        answered = False
        for how in _HOW:
            try:
                with silenced():  # what is found without a gradient is verified too
                    found, bad = false(odd.make, X, y, how)
            except GradregError:
                continue
            answered, returned, wrong = True, returned + found, wrong + bad
        models += answered
    print(f"\n{kind}: {wrong} of {returned} adversarial images of {models} models are false")
    assert wrong == 0
    assert returned >= 50 * models


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10-l2", "cifar10-linf", "digits"])
def test_the_campaign_over_networks(name: str) -> None:
    make, x, y = digits() if name == "digits" else shipped(name)
    returned = wrong = 0
    for how in _HOW if name == "digits" else [how for how in _HOW if how["attacks"] != "paper"]:
        found, bad = false(make, x, y, how)
        returned, wrong = returned + found, wrong + bad
    print(f"\n{name}: {wrong} of {returned} adversarial images are false")
    assert (returned > 100, wrong) == (True, 0)
