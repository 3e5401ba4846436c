"""The measurement of a search in bfloat16: what its figures mean, on a network small enough to attack twice."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from bench.options import PrecisionOptions
from bench.precision import compare, show
from gradreg.attacks import attack
from gradreg.errors import ConfigError
from tiny_networks import tiny_run


def test_figures_are_those_of_both_searches() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    x = torch.rand(6, 3, 4, 4)
    y = model.eval()(x).argmax(1)
    row = compare(model, x, y, "l2", "quick", rounds=1)
    full, low = (attack(model, x, y, attacks="quick", precision=each) for each in ("model", "bf16"))
    assert row.propagations == (float(full.propagations.double().mean()), float(low.propagations.double().mean()))
    assert row.median == pytest.approx(float((low.distance / full.distance).double().quantile(0.5)))
    assert row.unverified == 0
    assert row.propagations[1] > row.propagations[0]


@pytest.mark.slow
def test_the_command_writes_its_figures(tmp_path: Path) -> None:
    options = PrecisionOptions(
        network=str(tiny_run(tmp_path / "run")), data="mnist5k", images=2, threats="l2", json=tmp_path / "figures.json"
    )
    rows = show(options, Console(quiet=True))
    written = json.loads((tmp_path / "figures.json").read_text())
    assert [row["attacks"] for row in written["rows"]] == [row.attacks for row in rows] == ["quick", "standard"]
    assert written["options"]["images"] == 2
    with pytest.raises(ConfigError, match="threats"):
        PrecisionOptions(threats="l3")
