"""steps.jsonl: what single steps logged, the same whether a run is interrupted or not."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_fit

from gradreg.errors import RunError
from gradreg.objectives import Gradient
from gradreg.runs.directory import RunDirectory
from gradreg.training import StepEnd

OPTIONS: dict[str, Any] = {
    "objective": Gradient("l2", eps=1.0, h=0.1, noise=0.1, alignment=True, omega=2, lazy=2),
    "log_steps": 2,
    "epochs": 2,
}


class _StoppedError(Exception):
    pass


def test_every_other_step_is_written_down_as_it_was(tmp_path: Path) -> None:
    seen: list[StepEnd] = []
    tiny_fit(tmp_path / "run", on_step=seen.append, **OPTIONS)
    rows = RunDirectory(tmp_path / "run").steps()
    assert [row["step"] for row in rows] == [1, 3, 5, 7, 9]
    assert [row["epoch"] for row in rows] == [1, 1, 1, 2, 2]
    for row in rows:
        at = seen[row["step"] - 1]
        assert row["loss"] == at.loss.item()
        assert row["clean_loss"] == at.scalars["clean_loss"].item()
        assert row["alignment"] == at.scalars["alignment"].item(), "these are the steps with a penalty"
    assert [row["omega"] is not None for row in rows] == [True, False, True, False, True]
    assert not (tmp_path / "run" / "steps.jsonl").read_text().count("NaN")


@pytest.mark.parametrize("kept", [0.0, 10.0])
def test_a_resumed_run_writes_the_same_steps(tmp_path: Path, kept: float) -> None:
    """With checkpoints after every step, or after epochs alone, to which the file goes back."""

    def stop(at: StepEnd) -> None:
        if at.step == 8:
            raise _StoppedError

    options = OPTIONS | {"log_steps": 1, "save_minutes": kept}
    tiny_fit(tmp_path / "whole", **options)
    with pytest.raises(_StoppedError):
        tiny_fit(tmp_path / "cut", on_step=stop, **options)
    tiny_fit(tmp_path / "cut", resume=True, **options)
    whole, cut = ((tmp_path / run / "steps.jsonl").read_text() for run in ("whole", "cut"))
    assert whole == cut
    assert len(whole.splitlines()) == 10
    looked = [json.loads(line)["alignment"] is not None for line in whole.splitlines()]
    assert looked == [True, False] * 5


def test_without_the_setting_there_is_no_file_and_damage_is_named(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "run", epochs=1)
    run = RunDirectory(tmp_path / "run")
    assert run.steps() == []
    assert not (tmp_path / "run" / "steps.jsonl").exists()
    run.rewind_steps(3)
    assert not (tmp_path / "run" / "steps.jsonl").exists()
    run.add_steps([{"step": 1, "loss": float("nan")}, {"step": 2}])
    run.rewind_steps(1)
    assert run.steps() == [{"step": 1, "loss": None}]
    (tmp_path / "run" / "steps.jsonl").write_text('{"step": 2}\n{"step": 2}\n')
    with pytest.raises(RunError, match=r"steps.jsonl is damaged: step 2 follows step 2"):
        run.steps()
