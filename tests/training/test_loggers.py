"""Loggers: each gets every number of every epoch, and none of them can end a run."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tiny import tiny_fit

from gradreg.errors import ConfigError, MissingPackageError, TrainingFailed
from gradreg.training import Fitted, JSONLLogger, Logger, MLflowLogger, TensorBoardLogger, WandbLogger


def numbers(fitted: Fitted) -> list[dict[str, float]]:
    return [
        {name: float(value) for name, value in row.items() if isinstance(value, int | float) and name != "epoch"}
        for row in fitted.metrics
    ]


class Heard:
    """A logger of a user's own."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def begin(self, settings: Mapping[str, Any], epoch: int) -> None:
        self.calls.append(("begin", settings["objective"]["eps"], epoch))

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        self.calls.append(("log", dict(numbers), epoch))

    def end(self, error: BaseException | None) -> None:
        self.calls.append(("end", error))


def test_a_logger_hears_the_beginning_every_epoch_and_the_end(tmp_path: Path) -> None:
    heard = Heard()
    assert isinstance(heard, Logger)
    fitted = tiny_fit(tmp_path / "run", epochs=2, loggers=[heard])
    logged = [("log", row, epoch) for epoch, row in enumerate(numbers(fitted), 1)]
    assert heard.calls == [("begin", 1.0, 0), *logged, ("end", None)]


def test_a_resumed_run_says_where_it_goes_on(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "run", on_epoch=lambda at: at.stop())
    heard = Heard()
    tiny_fit(tmp_path / "run", resume=True, loggers=[heard])
    assert heard.calls[0] == ("begin", 1.0, 1)
    assert [call[2] for call in heard.calls if call[0] == "log"] == [2, 3]


def test_the_end_hears_of_a_failure() -> None:
    heard = Heard()
    with pytest.raises(TrainingFailed):
        tiny_fit(epochs=1, optimizer={"name": "sgd", "lr": 1e30}, loggers=[heard])
    assert isinstance(heard.calls[-1][1], TrainingFailed)


def test_jsonl_has_a_line_per_epoch_and_no_nan(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    fitted = tiny_fit(epochs=2, loggers=[JSONLLogger(log)])
    found = [json.loads(line) for line in log.read_text().splitlines()]
    assert found == [{"epoch": epoch, **row} for epoch, row in enumerate(numbers(fitted), 1)]
    logger = JSONLLogger(log)
    logger.begin({}, 2)
    logger.log({"penalty": float("nan"), "loss": 1.0}, 3)
    logger.end(None)
    assert json.loads(log.read_text().splitlines()[-1]) == {"epoch": 3, "penalty": None, "loss": 1.0}
    with pytest.raises(ConfigError, match="cannot be opened for logging"):
        tiny_fit(epochs=1, loggers=[JSONLLogger(tmp_path)])


class Broken(Heard):
    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        raise ConnectionError("no route to host")

    def end(self, error: BaseException | None) -> None:
        raise ConnectionError("no route to host")


def test_a_logger_that_breaks_down_is_reported_and_does_not_end_the_run() -> None:
    heard = Heard()
    with pytest.warns(UserWarning, match="Broken") as caught:
        fitted = tiny_fit(epochs=2, loggers=[Broken(), heard])
    assert len(fitted.metrics) == 2
    assert len(heard.calls) == 4, "the others hear all the same"
    assert [str(one.message).split(" (")[0] for one in caught] == [
        "Broken could not log epoch 1",
        "Broken could not log epoch 2",
        "Broken could not be ended",
    ]


class Recorder:
    """A stand-in for an object of a library: every call of any method is written down."""

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **keywords: self._calls.append((name, *args, *([keywords] if keywords else [])))


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_tensorboard_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def writer(folder: str, **options: Any) -> Recorder:
        calls.append((folder, options))
        return Recorder(calls)

    stand_in(monkeypatch, "tensorboard")
    stand_in(monkeypatch, "torch.utils.tensorboard", SummaryWriter=writer)
    fitted = tiny_fit(tmp_path / "run", epochs=1, tensorboard=True)
    scalars = [("add_scalar", name, value, 1) for name, value in numbers(fitted)[0].items()]
    assert calls == [(str(tmp_path / "run" / "tensorboard"), {"purge_step": None}), *scalars, ("flush",), ("close",)]


def test_wandb_gets_every_number_by_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def init(**options: Any) -> Recorder:
        calls.append(("init", options["project"], options["config"]["objective.eps"]))
        return Recorder(calls)

    stand_in(monkeypatch, "wandb", init=init)
    fitted = tiny_fit(epochs=2, loggers=[WandbLogger(project="mine")])
    assert calls == [
        ("init", "mine", 1.0),
        ("define_metric", "*", {"step_metric": "epoch"}),
        *(("log", {"epoch": epoch, **row}) for epoch, row in enumerate(numbers(fitted), 1)),
        ("finish", {"exit_code": 0}),
    ]


@pytest.mark.parametrize("make", [lambda: TensorBoardLogger("board"), MLflowLogger, WandbLogger])
def test_a_missing_library_is_asked_for_by_name(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=r"^(\w+)Logger needs \w+, .* pip install 'gradreg\[\w+\]'\.$"):
        make()


def test_numbers_are_not_lost_without_a_word(tmp_path: Path) -> None:
    logger = JSONLLogger(tmp_path / "log.jsonl")
    with pytest.raises(ConfigError, match="begin must be called before log"):
        logger.log({"loss": 1.0}, 1)
    logger.begin({}, 0)
    logger.begin({}, 0)  # again, as by a second run
    logger.log({"loss": np.float64(0.5), "probe": float("nan")}, 1)
    with pytest.raises(ConfigError, match="numbers must map names to numbers; got 'low' for 'loss'"):
        logger.log({"loss": "low"}, 2)  # type: ignore[dict-item]
    logger.end(None)
    with pytest.raises(ConfigError, match="begin must be called before log"):
        logger.log({"loss": 1.0}, 3)
    assert (tmp_path / "log.jsonl").read_text() == '{"epoch": 1, "loss": 0.5, "probe": null}\n'
