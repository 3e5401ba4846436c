"""A run that was killed, whenever and however, ends with the weights of one that was not."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import Plain, digits, in_a_process, network, run_or_continue, same_weights, tiny_fit
from torch.utils.data import DataLoader, TensorDataset

from gradreg.errors import ConfigError, Interrupted, RunError
from gradreg.runs.checkpoints import State, read, write
from gradreg.runs.directory import RunDirectory
from gradreg.training.step import Learner


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@contextmanager
def dying_at_step(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Training ends as if killed instead of making that step."""
    step, left = Learner.step, number

    def stepped(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        return step(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "step", stepped)
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # In a process, as the killed ones: this fixture is made before the one that sets the number of threads.
    run = tmp_path_factory.mktemp("whole") / "run"
    in_a_process(run_or_continue, str(run)).join()
    return run


def metrics(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("hours", "images_per_second")} for row in rows]


def test_a_run_repeats_to_the_bit(uninterrupted: Path, tmp_path: Path) -> None:
    torch.rand(7)  # wherever the global stream stands
    tiny_fit(tmp_path / "again")
    assert same_weights(uninterrupted, tmp_path / "again")
    assert metrics(uninterrupted) == metrics(tmp_path / "again")


@pytest.mark.parametrize("moment", ["before a step", "before a rename", "after a rename"])
def test_killed_at_every_moment_of_a_kind(
    moment: str, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same run is killed at its first such moment, resumed, killed at its second one after that, and so on."""
    left = 0

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    step, rename = Learner.step, Path.replace

    def stepped(*arguments: Any, **options: Any) -> Any:
        if moment == "before a step":
            tick()
        return step(*arguments, **options)

    def renamed(path: Path, target: Path) -> Path:
        if moment == "before a rename":
            tick()
        result = rename(path, target)
        if moment == "after a rename":
            tick()
        return result

    monkeypatch.setattr(Learner, "step", stepped)
    monkeypatch.setattr(Path, "replace", renamed)
    run, kills = tmp_path / "run", 0
    while True:
        left = kills + 1
        try:
            tiny_fit(run, resume=(run / "config.toml").exists())
            break
        except Killed:
            kills += 1
    assert kills >= 4
    assert same_weights(uninterrupted, run)
    assert metrics(uninterrupted) == metrics(run)


def survive(kills: int, uninterrupted: Path, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(kills):
        run = tmp_path / str(number)
        process = in_a_process(run_or_continue, str(run))
        while not (run / "config.toml").exists():
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 0.6))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        again = in_a_process(run_or_continue, str(run))
        again.join()
        assert again.exitcode == 0
        assert same_weights(uninterrupted, run)
        assert metrics(uninterrupted) == metrics(run)


def test_three_sigkills(uninterrupted: Path, tmp_path: Path) -> None:
    survive(3, uninterrupted, tmp_path, seed=1)


@pytest.mark.slow
def test_twenty_sigkills(uninterrupted: Path, tmp_path: Path) -> None:
    survive(20, uninterrupted, tmp_path, seed=2)


@pytest.mark.usefixtures("as_in_a_terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(number: int, uninterrupted: Path, tmp_path: Path, monkeypatch: Any) -> None:
    step, steps = Learner.step, 0

    def stepped(*arguments: Any, **options: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 7:
            os.kill(os.getpid(), number)
        return step(*arguments, **options)

    before = signal.getsignal(number)
    monkeypatch.setattr(Learner, "step", stepped)
    with pytest.raises(Interrupted, match="Stopped in epoch 2, step 7 and saved: continue with --resume") as stop:
        tiny_fit(tmp_path / "run", save_minutes=60)
    assert stop.value.signal == number
    assert signal.getsignal(number) is before
    tiny_fit(tmp_path / "run", save_minutes=60, resume=True)
    assert same_weights(uninterrupted, tmp_path / "run")


def test_a_users_loader_resumes_to_the_bit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shuffling and its augmentation draw from the global stream."""
    images = digits(60)
    dataset = TensorDataset(images.floats(), images.labels)

    def augmented(rows: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = (torch.stack(column) for column in zip(*rows, strict=True))
        return (x + 0.1 * torch.rand(len(x), 1, 1, 1)).clamp(0, 1), y

    def loaders() -> tuple[Any, Any]:
        return DataLoader(dataset, 16, shuffle=True, collate_fn=augmented), DataLoader(dataset, 30)

    tiny_fit(tmp_path / "whole", data=loaders(), epochs=2)
    with pytest.raises(Killed), dying_at_step(6, monkeypatch):
        tiny_fit(tmp_path / "killed", data=loaders(), epochs=2)
    tiny_fit(tmp_path / "killed", data=loaders(), epochs=2, resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "killed")


def test_every_optimizer_resumes_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sgd", "adamw", "muon"):
        options: dict[str, Any] = {"optimizer": {"name": name}, "epochs": 2, "ema": None}
        tiny_fit(tmp_path / name, **options)
        with pytest.raises(Killed), dying_at_step(4, monkeypatch):
            tiny_fit(tmp_path / f"{name}-killed", **options)
        tiny_fit(tmp_path / f"{name}-killed", **options, resume=True)
        assert same_weights(tmp_path / name, tmp_path / f"{name}-killed")


def test_a_finished_run_may_be_resumed_and_stays_as_it_is(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "run", epochs=1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.safetensors")}
    fitted = tiny_fit(tmp_path / "run", epochs=1, resume=True)
    assert len(fitted.metrics) == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.safetensors")} == before


def test_a_directory_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty: choose another --run, or continue that run with --resume"):
        tiny_fit(tmp_path)
    with pytest.raises(RunError, match="holds no run"):
        tiny_fit(tmp_path, resume=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_resumed_run_keeps_its_settings(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "run", epochs=1)
    with pytest.raises(ConfigError, match=r"epochs must be 1 to resume .*; got 2\. A resumed run keeps its settings"):
        tiny_fit(tmp_path / "run", epochs=2, resume=True)
    with pytest.raises(ConfigError, match=r"clip_norm must be unset to resume .*; got 1\.0"):
        tiny_fit(tmp_path / "run", epochs=1, clip_norm=1.0, resume=True)
    tiny_fit(tmp_path / "run", epochs=1, save_minutes=3, resume=True)


def test_a_run_from_before_a_setting_existed_resumes(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "run", epochs=1)
    recipe = tmp_path / "run" / "config.toml"
    lines = recipe.read_text().splitlines(keepends=True)
    assert "deterministic = false\n" in lines
    recipe.write_text("".join(line for line in lines if not line.startswith("deterministic")))
    with pytest.raises(RunError, match=r"state-000000005\.safetensors is damaged: It belongs to another recipe"):
        tiny_fit(tmp_path / "run", epochs=1, resume=True)
    for path in (tmp_path / "run").glob("*.safetensors"):
        state = read(path)
        write(path, State(state.tensors, {name: value for name, value in state.numbers.items() if name != "of"}))
    tiny_fit(tmp_path / "run", epochs=1, resume=True)
    with pytest.raises(ConfigError, match=r"deterministic must be False to resume .*; got True"):
        tiny_fit(tmp_path / "run", epochs=1, deterministic=True, resume=True)


def stopped(run: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Path:
    """A run that was killed before its seventh step, the second of the second epoch; its newest checkpoint."""
    with pytest.raises(Killed), dying_at_step(7, monkeypatch):
        tiny_fit(run, **changes)
    older, newest = sorted(run.glob("state-*.safetensors"))
    older.unlink()
    return newest


def without(beginning: str) -> Callable[[State], State]:
    def change(state: State) -> State:
        return State({k: v for k, v in state.tensors.items() if not k.startswith(beginning)}, state.numbers)

    return change


def renamed(before: str, after: str) -> Callable[[State], State]:
    return lambda state: State({k.replace(before, after): v for k, v in state.tensors.items()}, state.numbers)


def with_tensor(name: str, value: torch.Tensor) -> Callable[[State], State]:
    return lambda state: State({**state.tensors, name: value}, state.numbers)


def with_number(name: str, value: Any) -> Callable[[State], State]:
    return lambda state: State(state.tensors, {**state.numbers, name: value})


DAMAGE: dict[str, tuple[Callable[[State], State], str]] = {
    "one moment gone": (without("optimizer/0.0.exp_avg"), r"optimizer/0\.0\.exp_avg is missing"),
    "a moment of all gone": (renamed("exp_avg_sq", "expavgsq"), r"optimizer/0\.\d\.expavgsq, .* does not fit"),
    "its count gone": (without("optimizer/0.3.step"), r"optimizer/0\.3\.step is missing"),
    "no optimizer": (without("optimizer/"), "must hold the state of the optimizer after 6 steps; got none of it"),
    "a number for a moment": (with_tensor("optimizer/0.0.exp_avg", torch.tensor(0.0)), "shape .*, does not fit"),
    "whole moments": (with_tensor("optimizer/0.3.exp_avg", torch.ones(8, dtype=torch.int64)), "int64 .* does not fit"),
    "too many updates": (with_tensor("optimizer/0.0.step", torch.tensor(7.0)), "from 1 to 6, the steps made; got 7"),
    "updates below 1": (with_tensor("optimizer/0.0.step", torch.tensor(-1.0)), "from 1 to 6, the steps made; got -1"),
    "no sums": (without("sums/"), "sums/loss of the 1 batches of its epoch is missing"),
    "a step too far": (with_number("step", 999), "step must be 6 after 1 epochs and 1 batches; got 999"),
    "a step too few": (with_number("step", 5), "step must be 6 after 1 epochs and 1 batches; got 5"),
}


@pytest.mark.parametrize("counted", [True, False], ids=["", "of before tensors were counted"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_checkpoint_that_is_not_whole_is_refused(
    kind: str, counted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = DAMAGE[kind]
    newest = stopped(tmp_path / "run", monkeypatch)
    state = change(read(newest))
    numbers = {name: value for name, value in state.numbers.items() if name != "tensors"}
    write(newest, State(state.tensors, {**numbers, "tensors": len(state.tensors)} if counted else numbers))
    before = newest.read_bytes()
    with pytest.raises(RunError, match=said) as caught:
        tiny_fit(tmp_path / "run", resume=True)
    assert "\n" not in str(caught.value)
    assert newest.read_bytes() == before


def test_a_checkpoint_knows_how_many_tensors_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight without state may be one that is not trained, so that only the number tells."""
    newest = stopped(tmp_path / "run", monkeypatch)
    state = read(newest)
    kept = without("optimizer/0.3.")(state)
    write(newest, kept)
    with pytest.raises(RunError, match=f"must hold {len(state.tensors)} tensors; got {len(state.tensors) - 3}"):
        tiny_fit(tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", ["sgd", "muon"])
def test_other_optimizers_are_whole_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = stopped(tmp_path / "run", monkeypatch, optimizer={"name": name})
    state = renamed("momentum_buffer", "momentum")(read(newest))
    write(newest, state)
    with pytest.raises(RunError, match=r"optimizer/0\.\d\.momentum, .* does not fit"):
        tiny_fit(tmp_path / "run", optimizer={"name": name}, resume=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"train_only": ["6"]},
        {"train_only": ["6"], "optimizer": {"name": "muon"}},
        {"optimizer": {"name": "sgd", "momentum": 0.0, "nesterov": False}},
    ],
    ids=["frozen", "frozen, muon", "without momentum"],
)
def test_what_has_no_state_needs_none(changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_fit(tmp_path / "whole", **changes)
    stopped(tmp_path / "run", monkeypatch, **changes)
    tiny_fit(tmp_path / "run", **changes, resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "run")


def test_a_run_with_an_objective_made_in_python_resumes(tmp_path: Path) -> None:
    """Its settings cannot be built from config.toml, so they are compared as they are."""
    tiny_fit(tmp_path / "run", objective=Plain(), epochs=1)
    assert len(tiny_fit(tmp_path / "run", objective=Plain(), epochs=1, resume=True).metrics) == 1
    with pytest.raises(ConfigError, match=r"objective must be .*Plain.* to resume"):
        tiny_fit(tmp_path / "run", objective="undefended", epochs=1, resume=True)


def test_the_model_holds_the_best_weights_afterwards(tmp_path: Path) -> None:
    model = network()
    tiny_fit(tmp_path / "run", model=model)
    best = RunDirectory(tmp_path / "run").weights("best").tensors
    assert all(torch.equal(best[name], tensor) for name, tensor in model.state_dict().items())
