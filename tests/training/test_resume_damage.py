"""Runs whose files say less, or other things, than the runs did: refused where a number would be wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import network, same_weights, stopped_after, tiny_fit
from torch import nn

from gradreg.errors import RunError
from gradreg.report.tables.runs import read as compared
from gradreg.runs.checkpoints import Generations, State, read, write
from gradreg.runs.directory import RunDirectory

SHORT: dict[str, Any] = {"epochs": 3, "probe": None, "objective": "undefended", "ema": None}


def newest(run: Path) -> Path:
    """The other checkpoint is removed, which would be used in its place."""
    *older, found = sorted(run.glob("state-*.safetensors"))
    for path in older:
        path.unlink()
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    stopped_after(7, tmp_path / "run", **SHORT)
    return tmp_path / "run"


def reading(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda numbers: numbers["readings"][0].update(changes)


NUMBERS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "rollbacks": (lambda numbers: numbers.update(rollbacks=2000), "rollbacks must lie between 0 and 3; got 2000"),
    "clean": (reading(clean=5.0), "clean must lie between 0 and 1; got 5"),
    "probe": (reading(probe=-0.5), "probe must lie between 0 and 1; got -0.5"),
    "held_out": (reading(held_out=-1), "held_out must be at least 0|held_out must lie between 0"),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_out_of_their_range_are_refused(kind: str, run: Path) -> None:
    change, said = NUMBERS[kind]
    path = newest(run)
    state = read(path)
    numbers = dict(state.numbers)
    change(numbers)
    write(path, State(state.tensors, numbers))
    with pytest.raises(RunError, match=said):
        tiny_fit(run, resume=True, **SHORT)


def test_readings_that_are_not_finite_are_what_diverged_networks_have(run: Path) -> None:
    state = read(path := newest(run))
    state.numbers["readings"][0].update(held_out_loss=float("nan"), grad_norm=float("inf"))
    write(path, state)
    assert len(tiny_fit(run, resume=True, **SHORT).metrics) == 3


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl"])
def test_runs_are_not_compared_by_files_of_another_run(name: str, tmp_path: Path) -> None:
    """Its weights say whose settings and accuracies these are."""
    for seed in (0, 1):
        tiny_fit(tmp_path / str(seed), **SHORT, seed=seed)
    assert compared(tmp_path / "0").epochs
    (tmp_path / "0" / name).write_bytes((tmp_path / "1" / name).read_bytes())
    with pytest.raises(RunError, match="restore the one that belongs to it"):
        compared(tmp_path / "0")


class Unused(nn.Module):
    """A weight that no loss depends on, which has no state in any checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.net = nn.Parameter(torch.zeros(3)), network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.net(x)
        return found


def uncounted(path: Path, *left_out: str) -> None:
    """As of before tensors were counted, without some of them."""
    state = read(path)
    tensors = {name: value for name, value in state.tensors.items() if not name.startswith(left_out or "none")}
    assert len(tensors) == len(state.tensors) - 3 * len(left_out)
    write(path, State(tensors, {name: value for name, value in state.numbers.items() if name != "tensors"}))


def test_state_of_one_weight_that_is_gone_is_missed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped_after(7, run, model=Unused(), **SHORT)
    uncounted(newest(run), "optimizer/0.1.")
    with pytest.raises(
        RunError,
        match=r"must hold the optimizer's state of all weights that are trained; got none of net\.6\.weight: delete",
    ):
        tiny_fit(run, model=Unused(), resume=True, **SHORT)


def test_a_weight_that_never_had_state_is_not_missed(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "whole", model=Unused(), **SHORT)
    stopped_after(7, tmp_path / "run", model=Unused(), **SHORT)
    uncounted(newest(tmp_path / "run"))
    tiny_fit(tmp_path / "run", model=Unused(), resume=True, **SHORT)
    assert same_weights(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize(
    ("kept", "said"),
    [([1], r"^\S+metrics\.jsonl is damaged: .* got none for epoch 1"), ([0], "must have metrics of the 2 epochs")],
)
def test_lines_of_metrics_that_are_gone_are_missed(kept: list[int], said: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped_after(12, run, **SHORT)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[row] for row in kept))
    with pytest.raises(RunError, match=said):
        tiny_fit(run, resume=True, **SHORT)


def test_a_run_of_which_weights_alone_are_left_is_not_begun_again(tmp_path: Path) -> None:
    tiny_fit(tmp_path, **SHORT)
    for path in (*tmp_path.glob("state-*"), tmp_path / "metrics.jsonl"):
        path.unlink()
    before = (tmp_path / "best.safetensors").read_bytes()
    with pytest.raises(RunError, match="has weights of epoch 3 and neither metrics nor a checkpoint"):
        tiny_fit(tmp_path, resume=True, **SHORT)
    assert (tmp_path / "best.safetensors").read_bytes() == before
    RunDirectory(tmp_path).weights("best")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda text: text[: text.index("\n") + 1], r"last\.safetensors has the weights of epoch 3.*has 1 epochs"),
        (
            lambda text: text.replace('"clean": ', '"clean": 1e-3, "was": '),
            "says another clean of epoch 3 than metrics.jsonl",
        ),
    ],
)
def test_metrics_of_other_epochs_than_the_weights_are_refused(
    edit: Callable[[str], str], said: str, tmp_path: Path
) -> None:
    """Epochs and hours of the report are from metrics.jsonl, and the accuracies are those of the weights."""
    tiny_fit(tmp_path, **SHORT)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(edit(metrics.read_text()))
    with pytest.raises(RunError, match=said):
        RunDirectory(tmp_path).weights("last")


def test_a_finished_run_whose_checkpoints_found_no_room_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(generations: Generations, state: State, *, only: bool = False) -> None:
        raise OSError(28, "No space left on device")

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Generations, "save", full)
        with pytest.raises(OSError, match="No space left"):
            tiny_fit(run, **SHORT | {"epochs": 1})
    tiny_fit(run, resume=True, **SHORT | {"epochs": 1})

    tiny_fit(tmp_path / "whole", **SHORT)
    for path in (tmp_path / "whole").glob("state-*"):
        path.unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    fitted = tiny_fit(tmp_path / "whole", resume=True, **SHORT)
    assert [row["epoch"] for row in fitted.metrics] == [1, 2, 3]
    assert fitted.best == RunDirectory(tmp_path / "whole").weights("best").numbers["metrics"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()} == before
    (tmp_path / "whole" / "best.safetensors").unlink()
    with pytest.raises(RunError, match="has finished 3 epochs and has no checkpoint: start a new run"):
        tiny_fit(tmp_path / "whole", resume=True, **SHORT)
