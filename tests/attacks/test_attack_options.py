"""Options of an attack: an object or keywords, checked before any work, shown in signatures."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

import gradreg
from gradreg.attacks import AttackOptions
from gradreg.errors import ConfigError


def test_options_and_keywords_give_the_same_result(linear: Any, images: Tensor) -> None:
    x, y = images.float(), linear.float()(images.float()).argmax(1)
    given = AttackOptions(threat="linf", attacks="quick", topk=1, seed=3, batch_size=4)
    whole = gradreg.attack(linear, x, y, given)
    parts = gradreg.attack(linear, x, y, threat="linf", attacks="quick", seed=3)
    assert torch.equal(whole.distance, parts.distance)
    assert whole.winner == parts.winner


def test_a_single_attack_takes_the_shared_options_and_its_own(linear: Any, images: Tensor) -> None:
    x, y = images.float(), linear.float()(images.float()).argmax(1)
    found = gradreg.attacks.fmn(linear, x, y, threat="l2", seed=1, steps=5)
    assert int(found.backwards.max()) <= 8
    with pytest.raises(ConfigError, match=r"fmn's options must be among steps.*; got step"):
        gradreg.attacks.fmn(linear, x, y, threat="l2", step=5)


def test_signatures_show_every_option() -> None:
    shown = inspect.signature(gradreg.attack).parameters
    assert {"model", "x", "y", "options", "threat", "attacks", "eps", "budget", "start", "resume"} <= set(shown)
    assert shown["attacks"].default == AttackOptions().attacks
    assert "quantize" in inspect.signature(type(gradreg.attacks.fmn).__call__).parameters


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"attacks": "standart"}, "attacks must be a suite .*; got 'standart'.*did you mean 'standard'"),
        ({"attacks": []}, "attacks must be a suite"),
        ({"threat": "l3"}, "threat must be one of"),
        ({"eps": float("nan")}, "eps must be"),
        ({"eps": [0.1, float("inf")]}, "eps must be"),
        ({"budget": 0}, "budget must be at least"),
        ({"quantize": 17}, "quantize must be"),
        ({"seed": "1"}, "seed must be a whole number"),
    ],
)
def test_what_means_nothing_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AttackOptions(**wrong)


def test_options_or_keywords_not_both(linear: Any, images: Tensor) -> None:
    with pytest.raises(ConfigError, match="Pass options= or keywords, not both"):
        gradreg.attack(linear, images, torch.zeros(len(images), dtype=torch.int64), AttackOptions(), seed=1)
    with pytest.raises(ConfigError, match=r"no option 'epsilon'"):
        gradreg.attack(linear, images, torch.zeros(len(images), dtype=torch.int64), epsilon=0.1)
