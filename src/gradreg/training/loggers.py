"""Where the metrics of a run go beside its directory: three methods, and four loggers that have them."""

import json
from collections.abc import Mapping
from importlib import import_module
from math import isfinite
from numbers import Real
from pathlib import Path
from time import time
from typing import Any, Protocol, TextIO, TypeVar, runtime_checkable

from gradreg.checks.calls import validated
from gradreg.checks.scalars import Natural, shown
from gradreg.errors import ConfigError, Interrupted
from gradreg.extras import need

_T = TypeVar("_T")


@runtime_checkable
class Logger(Protocol):
    """Told of a run by its first process: once at the start, after every epoch, and once at the end."""

    def begin(self, settings: Mapping[str, Any], epoch: int) -> None:
        """Training starts after `epoch` finished epochs: 0, or more when a run is resumed."""

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        """The numbers of a finished epoch. After a rollback the same epochs come again."""

    def end(self, error: BaseException | None) -> None:
        """Training is over, by this error if there is one."""


class JSONLLogger:
    """One JSON object per epoch, appended to a file that other programs can follow while it grows."""

    @validated
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: TextIO | None = None

    @validated
    def begin(self, settings: Mapping[str, Any], epoch: Natural) -> None:
        self.end(None)
        try:
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be opened for logging ({error.strerror}).") from error

    @validated
    def log(self, numbers: Mapping[str, float], epoch: Natural) -> None:
        file = _begun(self._file)
        # JSON has no NaN and no infinity.
        row = {name: value if isfinite(value) else None for name, value in _plain(numbers).items()}
        file.write(json.dumps({"epoch": epoch, **row}) + "\n")
        file.flush()

    @validated
    def end(self, error: BaseException | None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class TensorBoardLogger:
    """Event files for TensorBoard, in a folder."""

    @validated
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._writer = _imported("torch.utils.tensorboard", self).SummaryWriter
        self._board: Any = None

    @validated
    def begin(self, settings: Mapping[str, Any], epoch: Natural) -> None:
        # What an interrupted process drew beyond the checkpoint is hidden.
        self._board = self._writer(str(self.folder), purge_step=epoch + 1 if epoch else None)

    @validated
    def log(self, numbers: Mapping[str, float], epoch: Natural) -> None:
        board = _begun(self._board)
        for name, value in _plain(numbers).items():
            board.add_scalar(name, value, epoch)
        board.flush()

    @validated
    def end(self, error: BaseException | None) -> None:
        if self._board is not None:
            self._board.close()


class MLflowLogger:
    """A run of an MLflow experiment: settings as parameters, numbers as metrics.

    `tracking_uri` and `experiment` default to MLflow's own (its environment variables). `run_id` continues a run.
    MLflow's global state is left alone, so an active run of yours is neither used nor ended.
    """

    @validated
    def __init__(
        self,
        experiment: str = "Default",
        *,
        tracking_uri: str | None = None,
        name: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self.experiment, self.tracking_uri, self.name, self.run_id = experiment, tracking_uri, name, run_id
        self._mlflow = _imported("mlflow", self)
        self._client: Any = None

    @validated
    def begin(self, settings: Mapping[str, Any], epoch: Natural) -> None:
        self._client = self._mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        if self.run_id is not None:
            self._client.update_run(self.run_id, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(self.experiment)
        where = found.experiment_id if found else self._client.create_experiment(self.experiment)
        self.run_id = self._client.create_run(where, run_name=self.name).info.run_id
        parameter = self._mlflow.entities.Param
        self._client.log_batch(self.run_id, params=[parameter(name, str(of)) for name, of in flat(settings).items()])

    @validated
    def log(self, numbers: Mapping[str, float], epoch: Natural) -> None:
        client, found = _begun(self._client), _plain(numbers)
        metric, now = self._mlflow.entities.Metric, int(1000 * time())
        client.log_batch(self.run_id, [metric(name, value, now, epoch) for name, value in found.items()])

    @validated
    def end(self, error: BaseException | None) -> None:
        if self._client is not None and self.run_id is not None:
            stopped = isinstance(error, Interrupted) or not isinstance(error, Exception)
            self._client.set_terminated(self.run_id, "FINISHED" if error is None else "KILLED" if stopped else "FAILED")


class WandbLogger:
    """A run of Weights & Biases; keywords are those of `wandb.init`, for example project=, mode="offline"."""

    def __init__(self, **init: Any) -> None:
        self._init = init
        self._wandb = _imported("wandb", self)
        self.run: Any = None
        """`wandb.init`'s, once training has begun."""

    @validated
    def begin(self, settings: Mapping[str, Any], epoch: Natural) -> None:
        self.run = self._wandb.init(**{"config": flat(settings), **self._init})
        # By the epoch, and not by W&B's own counter, which cannot go back when a run does.
        self.run.define_metric("*", step_metric="epoch")

    @validated
    def log(self, numbers: Mapping[str, float], epoch: Natural) -> None:
        _begun(self.run).log({"epoch": epoch, **_plain(numbers)})

    @validated
    def end(self, error: BaseException | None) -> None:
        if self.run is not None:
            self.run.finish(exit_code=0 if error is None else 1)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings under their dotted paths, as `--set` takes them."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def _begun(logger: _T | None) -> _T:
    """What `begin` has opened."""
    if logger is None:
        raise ConfigError("begin must be called before log: it opens what the numbers are written to.")
    return logger


def _plain(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an epoch, NaN and infinite ones included."""
    wrong = next((name for name, value in numbers.items() if not isinstance(value, Real)), None)
    if wrong is not None:
        raise ConfigError(f"numbers must map names to numbers; got {shown(numbers[wrong])} for {wrong!r}.")
    return {name: float(value) for name, value in numbers.items()}


def _imported(module: str, logger: object) -> Any:
    """An optional library, asked for when a logger is made: before any work."""
    need(module.rpartition(".")[2], type(logger).__name__)
    return import_module(module)
