"""A training step with the penalty, on the pretended device: the host's answers, and nothing to wait for."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradreg
from accelerator.accelerated import Dropped, assert_same, images, network, on, places
from accelerator.waits import watching

MODES: dict[str, dict[str, Any]] = {
    "the paper's": {"lam": 0.1},
    "linf": {"threat": "linf", "lam": 0.1},
    "l1": {"threat": "l1", "lam": 0.1},
    "eps": {"threat": "linf", "eps": 8 / 255, "weight": 2.0},
    "eps l2": {"threat": "l2", "eps": 0.5},
    "unsquared": {"lam": 0.1, "squared": False},
    "dual scale": {"threat": "linf", "lam": 0.1, "scale": "dual"},
    "central": {"lam": 0.1, "order": 2},
    "noise": {"threat": "linf", "eps": 0.1, "h": 0.1, "noise": 0.1, "statistics": "clean"},
    "output slope": {"threat": "l2", "eps": 0.5, "noise": 0.5, "output_slope": 1.0},
    "second steps": {"threat": "linf", "eps": 0.1, "second_step": 0.9},
    "looks": {"threat": "linf", "eps": 0.1, "alignment": True, "omega": 1},
    "two graphs": {"lam": 0.1, "graphs": 2},
    "two graphs, central": {"lam": 0.1, "graphs": 2, "order": 2},
    "double backprop": {"lam": 0.1, "method": "double-backprop"},
    "frozen": {"lam": 0.1, "bn": "frozen"},
    "an h per image": {"lam": 0.1, "h": torch.linspace(0.01, 0.05, 12)},
    "h as a number tensor": {"lam": 0.1, "h": torch.tensor(0.02)},
    "lazy": {"lam": 0.1, "lazy": 2, "step": 4},
    "lazy, skipped": {"lam": 0.1, "lazy": 2, "step": 5},
    "a fraction": {"lam": 0.1, "fraction": 0.25, "step": 4},
    "a fraction, frozen": {"lam": 0.1, "fraction": 0.25, "step": 4, "bn": "frozen"},
    "autocast kept": {"lam": 0.1, "autocast": "keep"},
    "own criterion": {"lam": 0.1, "criterion": nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)},
}


def step(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer, **mode: Any) -> Any:
    optimizer.zero_grad()
    out = gradreg.regularized_loss(model, x, y, **mode)
    out.loss.backward()
    optimizer.step()
    return out


@pytest.mark.parametrize("name", MODES)
def test_a_step_is_the_host_s(name: str) -> None:
    found = []
    for place in places():
        # Noise comes from the host's stream, masks from the device's: together they would differ from the host's.
        dropped = () if "noise" in MODES[name] else (Dropped(),)
        model, x, y = on(place, network(nn.BatchNorm2d(6), *dropped).train(), *images())
        out = step(model, x, y, torch.optim.SGD(model.parameters(), lr=0.1), **MODES[name])
        parts = {
            part: getattr(out, part).detach() for part in ("loss", "clean", "penalty", "grad_norm", "slope", "logits")
        }
        found.append((parts, dict(model.state_dict())))
    assert_same(found[1], found[0])


@pytest.mark.parametrize("name", MODES)
def test_a_step_never_waits(name: str, device: torch.device) -> None:
    model, x, y = on(device, network(nn.BatchNorm2d(6), Dropped()).train(), *images())
    mode = {option: value.to(device) if isinstance(value, Tensor) else value for option, value in MODES[name].items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, x, y, optimizer, **mode)
    with watching() as waits:
        step(model, x, y, optimizer, **mode)
    assert not waits.looks
    assert not waits.sends


def test_tensors_of_another_device_are_refused_in_a_sentence(device: torch.device) -> None:
    model, x, y = on(device, network(), *images())
    with pytest.raises(gradreg.DataError, match=r"x must be on the model's device, pretended:0; got cpu"):
        gradreg.regularized_loss(model, x.cpu(), y.cpu(), lam=0.1)
    with pytest.raises(gradreg.DataError, match=r"y must be on the device of x, pretended:0; got cpu"):
        gradreg.regularized_loss(model, x, y.cpu(), lam=0.1)


def test_a_model_may_move_its_own_input(device: torch.device) -> None:
    """As sharded and offloaded models do."""
    model, x, y = on(device, network(), *images())
    plain = gradreg.regularized_loss(model, x, y, lam=0.1)
    model.register_forward_pre_hook(lambda _, inputs: tuple(each.to(device) for each in inputs))
    moved = gradreg.regularized_loss(model, x.cpu(), y, lam=0.1)
    assert_same((moved.loss, moved.penalty), (plain.loss.cpu(), plain.penalty.cpu()))
