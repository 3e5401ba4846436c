"""Training in norms without a short name: objectives, probes, what a run remembers, and resuming."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import network, tiny_fit, weights
from torch.testing import assert_close

from gradreg import ConfigError
from gradreg.norms import Threat, ThreatName, Weighted
from gradreg.objectives import OBJECTIVES, Gradient
from gradreg.objectives.base import describe
from gradreg.runs.directory import RunDirectory
from own_norms import SumOfChannels, ThreeHalves

WEIGHTS = torch.linspace(1, 3, 784).view(1, 28, 28)
QUICK: dict[str, Any] = {"epochs": 1}


@pytest.mark.parametrize("t", [Weighted("linf", WEIGHTS), ThreeHalves(), SumOfChannels()], ids=lambda t: t.symbol)
@pytest.mark.parametrize("name", ["gradient", "adversarial", "fgsm-rs", "n-fgsm", "trades"])
def test_every_objective_trains(name: str, t: Threat) -> None:
    steps = {"steps": 2} if name in ("adversarial", "trades") else {}
    objective = OBJECTIVES[name](threat=t, eps=0.1, **steps)
    fitted = tiny_fit(objective=objective, probe={"threat": t, "eps": 0.1, "steps": 2, "images": 10}, **QUICK)
    assert torch.tensor(fitted.metrics[0]["loss"]).isfinite()
    assert t.symbol in describe(objective)


@pytest.mark.parametrize("name", ["l2", "linf"])
def test_weights_of_one_train_as_the_plain_norm_does(name: ThreatName, tmp_path: Path) -> None:
    for run, t in (("plain", name), ("weighted", Weighted(name, 1.0))):
        tiny_fit(tmp_path / run, objective=Gradient(threat=t, eps=0.3, h=0.1), probe=None, **QUICK)
    plain, weighted = (weights(tmp_path / run) for run in ("plain", "weighted"))
    for key, value in plain.items():
        assert_close(weighted[key], value, rtol=1e-3, atol=1e-5)


def test_a_run_remembers_its_norm_and_resumes_with_no_other(tmp_path: Path) -> None:
    def objective(factor: float) -> Gradient:
        return Gradient(threat=Weighted("l2", factor * WEIGHTS), eps=0.3, h=0.1)

    tiny_fit(tmp_path / "run", objective=objective(1.0), **QUICK)
    noted = RunDirectory(tmp_path / "run").config()["objective"]["threat"]
    assert noted == Weighted("l2", WEIGHTS).name
    tiny_fit(tmp_path / "run", objective=objective(1.0), resume=True, model=network(), **QUICK)
    with pytest.raises(ConfigError, match=r"objective must be .* to resume"):
        tiny_fit(tmp_path / "run", objective=objective(2.0), resume=True, model=network(), **QUICK)


def test_settings_refuse_what_is_no_norm() -> None:
    with pytest.raises(ConfigError, match="threat must be one of"):
        Gradient(threat="weighted-12345678", eps=0.1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"objective\.threat must be one of"):
        tiny_fit(objective={"name": "gradient", "threat": "weighted", "eps": 0.1})
    with pytest.raises(ConfigError, match=r"probe\.threat must be one of"):
        tiny_fit(probe={"threat": "weighted", "eps": 0.1})
