"""Damaged checkpoints, full disks, diverging networks: reported, named, survived."""

import errno
import json
from collections.abc import Container
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file
from tiny import same_weights, tiny_fit
from torch import Tensor, nn

from gradreg import storage
from gradreg.errors import RunError, StorageError, TrainingFailed
from gradreg.objectives import Moment, Outcome, Undefended
from gradreg.runs.checkpoints import Generations, State, read, write
from gradreg.runs.directory import RunDirectory
from gradreg.training.monitors import HeldOutMetrics
from gradreg.training.step import Learner
from gradreg.training.watch import find_failure, newest_is_best


def listening() -> Console:
    return Console(file=StringIO(), width=300, record=True, force_terminal=False)


def truncate(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


class Stop(BaseException):
    pass


def stop_before_step(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    original, done = Learner.step, 0

    def step(*arguments: Any, **options: Any) -> Any:
        nonlocal done
        done += 1
        if done == number:
            raise Stop
        return original(*arguments, **options)

    monkeypatch.setattr(Learner, "step", step)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint_is_reported_and_the_one_before_is_used(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_fit(tmp_path / "whole", epochs=2)
    stop_before_step(8, monkeypatch)
    with pytest.raises(Stop):
        tiny_fit(tmp_path / "run", epochs=2)
    monkeypatch.undo()
    newest, older = Generations(tmp_path / "run").paths()
    truncate(newest, share)
    console = listening()
    tiny_fit(tmp_path / "run", epochs=2, resume=True, console=console)
    assert f"{newest} is truncated or damaged" in (said := console.export_text())
    assert "The checkpoint before it is used." in said
    assert older.name == "state-000000006.safetensors"
    assert same_weights(tmp_path / "whole", tmp_path / "run")


def test_when_no_checkpoint_can_be_read(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "run", epochs=1)
    for path in Generations(tmp_path / "run").paths():
        truncate(path, 0.5)
    with pytest.raises(RunError, match=r"None of the 2 checkpoints in .* can be read: start a new run\."):
        tiny_fit(tmp_path / "run", epochs=1, resume=True)


def test_foreign_files_and_other_versions_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "x.safetensors", State({"a": torch.ones(2)}, {"step": 1}))
    assert read(tmp_path / "x.safetensors").numbers == {"step": 1}
    (tmp_path / "y.safetensors").write_bytes(b"\x80\x04 a pickle, perhaps")
    with pytest.raises(RunError, match="truncated or damaged"):
        read(tmp_path / "y.safetensors")
    storage.write(tmp_path / "z.safetensors", "checkpoint of format 99", {"a": torch.ones(2)}, {"step": 1})
    with pytest.raises(RunError, match="holds no checkpoint of format 1"):
        read(tmp_path / "z.safetensors")


class FullDisk:
    """Refuses the writes with these numbers, counted over all files of a run but its settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: Container[int]) -> None:
        self.writes, self.refused = 0, refused
        write_bytes = Path.write_bytes

        def save(tensors: Any, path: Path, metadata: Any) -> None:
            self.check(path)
            save_file(tensors, path, metadata=metadata)

        def write(path: Path, content: bytes) -> int:
            if path.name != "config.toml":
                self.check(path)
            return write_bytes(path, content)

        monkeypatch.setattr(storage, "save_file", save)
        monkeypatch.setattr(Path, "write_bytes", write)

    def check(self, path: Path) -> None:
        self.writes += 1
        if self.writes in self.refused:
            path.touch()
            raise OSError(errno.ENOSPC, "No space left on device")


def rows(run: Path) -> list[dict[str, Any]]:
    """The metrics without the speed."""
    speed = ("hours", "images_per_second")
    return [{name: value for name, value in row.items() if name not in speed} for row in RunDirectory(run).metrics()]


@pytest.mark.parametrize("refused", [range(2, 5), range(7, 9), range(6, 15), range(9, 10), range(12, 18)])
def test_a_disk_that_is_full_for_a_while_costs_nothing(
    refused: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it refuses (metrics, weights, checkpoints) is written as soon as it can be."""
    tiny_fit(tmp_path / "whole", epochs=3)
    disk, console = FullDisk(monkeypatch, refused), listening()
    tiny_fit(tmp_path / "run", epochs=3, console=console)
    assert disk.writes > refused.stop
    said = console.export_text()
    assert said.count("could not be written (No space left on device): free some space") >= 1
    assert "Training goes on, and tries again later." in said
    assert same_weights(tmp_path / "whole", tmp_path / "run")
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").glob(".*")] == [], "half-written files were left behind"


@pytest.mark.parametrize("start", [1, 3, 8, 12])
def test_a_disk_that_stays_full_ends_the_run_with_a_sentence_and_it_can_be_resumed(
    start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_fit(tmp_path / "whole", epochs=2)
    with monkeypatch.context() as patched:
        FullDisk(patched, range(start, 10_000))
        with pytest.raises(StorageError, match=r"could not be written \(No space left on device\): free some space"):
            tiny_fit(tmp_path / "run", epochs=2)
    tiny_fit(tmp_path / "run", epochs=2, resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "run")
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").glob(".*")] == []


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "run", epochs=1)
    half, mine = tmp_path / "run" / f".best.safetensors.{'0f' * 16}", tmp_path / "run" / ".notes"
    half.write_bytes(b"half of i")
    mine.write_text("mine")
    tiny_fit(tmp_path / "run", epochs=1, resume=True)
    assert (half.exists(), mine.exists()) == (False, True)


def test_a_line_of_metrics_cut_short_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.add_metrics({"epoch": 1, "loss": float("nan")})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "lo')
    assert run.metrics() == [{"epoch": 1, "loss": None}]
    run.rewind_metrics(1)
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"epoch": 1, "loss": None}


class Explodes:
    """Plain training whose loss is not finite from one step on, while `rollbacks` have not reached a number."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
        out = Undefended()(model, x, y, at)
        rollbacks = at.draws.key[1]
        return Outcome(out.loss * float("nan"), out.logits) if at.step == self.step and not rollbacks else out


def test_divergence_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"Training diverged in epoch 2, by step 8: .* set clip_norm\."):
        tiny_fit(tmp_path / "run", objective=Explodes(7))
    assert len(RunDirectory(tmp_path / "run").metrics()) == 1
    assert all(tensor.isfinite().all() for tensor in read(Generations(tmp_path / "run").paths()[0]).tensors.values())


def test_divergence_rolls_back_and_goes_on_at_half_the_rate(tmp_path: Path) -> None:
    console = listening()
    fitted = tiny_fit(tmp_path / "run", objective=Explodes(7), on_divergence="rollback", console=console)
    assert [row["rollbacks"] for row in fitted.metrics] == [0, 1, 1]
    assert [row["epoch"] for row in fitted.metrics] == [1, 2, 3]
    assert "Back to epoch 1, at half the learning rate." in console.export_text()


def test_divergence_before_the_first_good_epoch_ends_the_run_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match="Training diverged in epoch 1"):
        tiny_fit(tmp_path / "run", objective=Explodes(2), on_divergence="rollback")


def measured(clean: float, probe: float, single: float, commonest: float = 0.2, loss: float = 1.0) -> HeldOutMetrics:
    return HeldOutMetrics(100, clean, loss, commonest, 100, probe, single, grad_norm=1.0)


@pytest.mark.parametrize(
    ("epochs", "chosen"),
    [
        # (clean, probe) per epoch. With 100 images the standard error of 0.30 is 0.046.
        ([(0.50, 0.30), (0.55, 0.26), (0.53, 0.27)], 1),
        ([(0.71, 0.41), (0.70, 0.43)], 1),  # what clean accuracy loses is less than what robust accuracy gains
        ([(0.70, 0.43), (0.71, 0.41)], 0),
        ([(0.50, 0.30), (0.55, 0.25)], 0),
        ([(0.50, 0.30), (0.55, 0.26), (0.60, 0.22)], 1),  # the band hangs on the highest, so it cannot slide down
        ([(0.55, 0.20), (0.40, 0.30)], 1),
        ([(0.50, 0.30), (0.50, 0.30)], 0),
        ([(0.50, 0.28), (0.45, 0.30)], 0),
        ([(0.50, 0.28), (0.45, 0.30), (0.44, 0.36)], 2),
    ],
)
def test_the_best_epoch_has_the_highest_sum_of_those_that_the_probe_cannot_tell_apart(
    epochs: list[tuple[float, float]], chosen: int
) -> None:
    history = [measured(clean, probe, probe) for clean, probe in epochs]
    best = None
    for number in range(len(history)):
        if newest_is_best(history[: number + 1], best):
            best = number
    assert best == chosen


def test_without_a_probe_the_best_epoch_is_the_cleanest() -> None:
    history = [HeldOutMetrics(100, clean, 1.0, 0.2) for clean in (0.50, 0.54, 0.53, 0.55)]
    best = None
    for number in range(len(history)):
        best = number if newest_is_best(history[: number + 1], best) else best
    assert best == 3


def test_catastrophic_overfitting_is_distinguished_from_an_ordinary_decline() -> None:
    healthy = [measured(0.7, 0.40, 0.45), measured(0.75, 0.44, 0.50)]
    assert find_failure(healthy) is None
    assert find_failure([*healthy, measured(0.8, 0.40, 0.5)]) is None, "a little worse is no collapse"
    assert find_failure([*healthy, measured(0.8, 0.10, 0.2)]) is None, "single steps fell too: just a worse network"
    found = find_failure([*healthy, measured(0.8, 0.02, 0.85)])
    assert found is not None
    assert found.kind == "overfitting"
    assert "Catastrophic overfitting in epoch 3: accuracy under the probe fell from 44.0% to 2.0%" in found.message


def test_a_constant_prediction_for_three_epochs_is_divergence() -> None:
    stuck = measured(0.1, 0.1, 0.1, commonest=1.0)
    assert find_failure([stuck, stuck]) is None
    assert find_failure([stuck, measured(0.5, 0.2, 0.2), stuck]) is None
    found = find_failure([stuck] * 3)
    assert found is not None
    assert found.kind == "divergence"
    assert "the same class" in found.message


def test_a_held_out_loss_that_is_not_finite_is_divergence() -> None:
    found = find_failure([measured(0.1, 0.1, 0.1, loss=float("nan"))])
    assert found is not None
    assert found.kind == "divergence"


@pytest.mark.parametrize("policy", ["stop", "rollback", "ignore"])
def test_what_overfitting_leads_to(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network is made to overfit on paper: its second evaluation shows the collapse."""
    from gradreg.training import loop

    shown = iter([measured(0.7, 0.4, 0.4), measured(0.7, 0.01, 0.9), *[measured(0.8, 0.5, 0.6)] * 3])
    monkeypatch.setattr(loop, "evaluate_held_out", lambda *_: next(shown))
    console = listening()

    def run() -> Any:
        return tiny_fit(tmp_path / "run", epochs=3, on_overfitting=policy, console=console)

    if policy == "stop":
        with pytest.raises(TrainingFailed, match="Catastrophic overfitting in epoch 2"):
            run()
        return
    metrics = run().metrics
    assert "Catastrophic overfitting in epoch 2" in console.export_text()
    assert [row["rollbacks"] for row in metrics] == ([0, 1, 1] if policy == "rollback" else [0, 0, 0])
    assert [row["probe"] for row in metrics] == ([0.4, 0.5, 0.5] if policy == "rollback" else [0.4, 0.01, 0.5])
