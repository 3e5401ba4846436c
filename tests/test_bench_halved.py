"""Copies of runs with half the weights: what they hold, what they answer, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

import gradreg
from bench.__main__ import main
from gradreg.config import tables
from gradreg.runs import Config, RunDirectory

MODEL: dict[str, Any] = {"name": "small", "classes": 10, "channels": 1}
ROW = {"epoch": 1, "clean": 0.5, "hours": 0.1, "machine": "A"}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run")
    made.start(tables.plain(tables.build(Config, {"data": "mnist5k", "model": MODEL, "epochs": 1})))
    made.add_metrics(ROW)
    made.save_weights("best", gradreg.build(**MODEL).state_dict(), ROW)
    return made


def test_a_copy_is_the_same_run_with_rounded_weights(run: RunDirectory, tmp_path: Path) -> None:
    to = tmp_path / "half"
    main(["halved", str(run.folder), str(to)])
    made, before = RunDirectory(to), run.weights("best")
    assert (made.config(), made.metrics(), made.key) == (run.config(), run.metrics(), run.key)
    assert made.weights("best").numbers == before.numbers
    network = gradreg.load(to)
    for name, value in network.state_dict().items():
        assert value.dtype is before.tensors[name].dtype, "networks compute in the precision that they did"
        assert torch.equal(value, before.tensors[name].half().to(value.dtype))
    full, half = (path.stat().st_size for path in (run.folder / "best.safetensors", to / "best.safetensors"))
    assert half < 0.6 * full


def test_what_cannot_be_copied(run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = run.weights("best").tensors
    name = next(name for name, value in weights.items() if value.is_floating_point())
    run.save_weights("best", {**weights, name: weights[name] + 1e5}, ROW)
    with pytest.raises(SystemExit):
        main(["halved", str(run.folder), str(tmp_path / "half")])
    assert f"bench: {name!r} of {run.folder} has values beyond those of half precision." in capsys.readouterr().err
    assert not (tmp_path / "half").exists()
    with pytest.raises(SystemExit):
        main(["halved", str(run.folder), str(run.folder)])
    assert f"bench: {run.folder} exists: choose another folder." in capsys.readouterr().err
