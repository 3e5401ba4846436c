"""A plane to attack, and peers that are made up, for the tests of the measurement of attacks."""

from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bench import contenders
from bench.contenders import Setting
from bench.options import Lengths
from bench.peers import Outcome, PeerAttack
from gradreg.attacks import boundary, carlini_wagner, suite

TINY = Lengths(rounds=2, cw=4, boundary=10, steps=4)


def linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """A linear classifier of images with given weights."""
    layer = nn.Linear(weight.shape[1], len(weight))
    layer.load_state_dict({"weight": weight, "bias": bias})
    return nn.Sequential(nn.Flatten(), layer).eval().requires_grad_(False)


def first_pixel() -> nn.Module:
    """Class 1 where the first pixel is above a half."""
    weight = torch.zeros(2, 16)
    weight[1, 0] = 2.0
    return linear(weight, torch.tensor([1.0, 0.0]))


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every suite is the quick one, and our attacks are as short as they can be."""
    for suites, names in ((suite.MINIMAL, ("standard", "paper")), (suite.FIXED, ("standard",))):
        for name in names:
            monkeypatch.setitem(suites, name, suites["quick"])
    monkeypatch.setattr(contenders, "carlini_wagner", partial(carlini_wagner, steps=4, rounds=2))
    monkeypatch.setattr(contenders, "boundary", partial(boundary, steps=10))


def dark(count: int) -> tuple[Tensor, Tensor]:
    """Images of class 0 at l2 distance 0.25 from class 1."""
    return torch.full((count, 1, 4, 4), 0.25), torch.zeros(count, dtype=torch.int64)


def moved(by: float) -> PeerAttack:
    """Raises the first pixel, after three forwards and two backwards; draws from the global streams."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            model(x)
        for _ in range(2):
            model(x.clone().requires_grad_()).sum().backward()
        points = x.clone() + 0 * torch.rand(()) * np.random.rand()
        points[:, 0, 0, 0] += by
        return points

    return run


def outcome(distance: list[float], forwards: float, cpu: float) -> Outcome:
    return Outcome(torch.tensor(distance), forwards, 0.0, int(forwards), cpu, 2 * cpu)


def setting(model: nn.Module, *who: str) -> Setting:
    return Setting(model, "l2", 0.2, who, 0, TINY)


def fake_foolbox() -> ModuleType:
    """An attack by that interface: whatever it is called, it moves the first pixel to the other side."""

    def made(**options: object) -> object:
        def attack(model: nn.Module, x: Tensor, y: Tensor, epsilons: float | list[float] | None) -> object:
            points = moved(0.3)(model, x, y)
            if isinstance(epsilons, list):
                # It succeeds at the larger radii only, further away than it needs to.
                far = [moved(0.3 + eps)(model, x, y) for eps in epsilons]
                return far, far, torch.tensor([[eps > 0.1] * len(x) for eps in epsilons])
            return points, points, torch.ones(len(x), dtype=torch.bool)

        return attack

    class Fed:
        def feed(self, model: nn.Module, inputs: Tensor) -> None:
            self.outputs = model(inputs)

    def failing(init_attack: Fed, **options: object) -> object:
        raise ValueError(f"init_attack failed for 1 of {len(init_attack.outputs)} inputs")

    names = ("L2CarliniWagnerAttack", "DDNAttack", "L2PGD", "LinfPGD", "LInfFMNAttack")
    module = ModuleType("foolbox")
    attacks = SimpleNamespace(**dict.fromkeys(names, made), BoundaryAttack=failing, DatasetAttack=Fed)
    module.attacks = attacks  # type: ignore[attr-defined]
    module.PyTorchModel = lambda model, bounds, device: model  # type: ignore[attr-defined]
    module.__version__ = "0"  # type: ignore[attr-defined]
    return module
