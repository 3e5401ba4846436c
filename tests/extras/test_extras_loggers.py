"""The loggers with the libraries themselves: what was written is read back by their own readers."""

from pathlib import Path

import mlflow
import pytest
from torch import nn

import gradreg
from gradreg.errors import TrainingFailed
from gradreg.training import EpochEnd, Fitted, MLflowLogger, TensorBoardLogger, WandbLogger

# The libraries' own: MLflow calls what SQLAlchemy deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def fit(**options: object) -> Fitted:
    digits = gradreg.data.load("mnist5k").train
    assert isinstance(digits, gradreg.data.Images)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    settings = {"epochs": 2, "batch_size": 32, "held_out": 32, "objective": {"name": "gradient", "eps": 0.5}}
    return gradreg.fit(model, digits.subset(slice(128)), **settings | options)  # type: ignore[arg-type]


def expected(fitted: Fitted) -> list[dict[str, float]]:
    rows = [{name: value for name, value in row.items() if isinstance(value, int | float)} for row in fitted.metrics]
    return [{name: float(value) for name, value in row.items() if name != "epoch"} for row in rows]


def test_mlflow_has_settings_numbers_and_status_in_a_local_store(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = MLflowLogger("digits", tracking_uri=uri, name="first")
    fitted = fit(loggers=[logger])
    client = mlflow.MlflowClient(uri)
    assert logger.run_id is not None
    found = client.get_run(logger.run_id)
    assert (found.info.status, found.info.run_name) == ("FINISHED", "first")
    assert found.data.params["objective.eps"] == "0.5"
    for name, value in expected(fitted)[0].items():
        first, last = client.get_metric_history(logger.run_id, name)
        assert (first.step, last.step) == (1, 2)
        assert first.value == pytest.approx(value)
        assert last.value == pytest.approx(expected(fitted)[1][name])
    assert mlflow.active_run() is None

    failing = MLflowLogger("digits", tracking_uri=uri)
    with pytest.raises(TrainingFailed):
        fit(loggers=[failing], optimizer={"name": "sgd", "lr": 1e30})
    assert failing.run_id is not None
    assert client.get_run(failing.run_id).info.status == "FAILED"


def test_mlflow_continues_a_run(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = MLflowLogger(tracking_uri=uri)
    fit(run=tmp_path / "run", loggers=[logger], on_epoch=EpochEnd.stop)
    again = MLflowLogger(tracking_uri=uri, run_id=logger.run_id)
    fit(run=tmp_path / "run", resume=True, loggers=[again])
    assert logger.run_id is not None
    history = mlflow.MlflowClient(uri).get_metric_history(logger.run_id, "loss")
    assert [entry.step for entry in history] == [1, 2]


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fitted = fit(run=tmp_path / "run", tensorboard=True, loggers=[TensorBoardLogger(tmp_path / "board")])
    for folder in (tmp_path / "run" / "tensorboard", tmp_path / "board"):
        events = EventAccumulator(str(folder))
        events.Reload()
        assert set(events.Tags()["scalars"]) == set(expected(fitted)[0])
        for name in expected(fitted)[0]:
            found = [(entry.step, entry.value) for entry in events.Scalars(name)]
            assert found == [
                (1, pytest.approx(expected(fitted)[0][name])),
                (2, pytest.approx(expected(fitted)[1][name])),
            ]


def test_wandb_offline_has_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(project="digits", mode="offline", dir=str(tmp_path))
    seen: list[dict[str, float]] = []  # a finished run of theirs forgets its summary
    fitted = fit(loggers=[logger], on_epoch=lambda at: seen.append(dict(logger.run.summary)))
    summary = seen[-1]
    assert [row["epoch"] for row in seen] == [1, 2]
    for name, value in expected(fitted)[1].items():
        assert summary[name] == pytest.approx(value)
    assert logger.run.config["objective.eps"] == 0.5
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
