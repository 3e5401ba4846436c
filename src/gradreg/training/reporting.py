"""Progress of a run: a live bar on a terminal, else one line per epoch; optionally TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from gradreg.errors import ConfigError


class Reporter:
    """Prints steps, epochs and warnings to a console; without a console, nothing."""

    def __init__(self, console: Console | None, tensorboard: Path | None = None) -> None:
        self.console = console
        self.board = _summary_writer(tensorboard) if tensorboard else None
        self.progress: Progress | None = None
        self.task = TaskID(0)

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self.progress:
            self.progress.stop()
        if self.board:
            self.board.close()

    def begin(self, steps: int, done: int) -> None:
        """Show the progress of a run of `steps` steps, of which `done` are done."""
        if self.console is None or not self.console.is_terminal:
            return
        columns = (
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=self.console, transient=True)
        self.task = self.progress.add_task("", total=steps, completed=done, epoch="", loss="", rate="")
        self.progress.start()

    @property
    def wants_loss(self) -> bool:
        """Whether the loss of a step is shown, and so worth fetching from the device."""
        return self.progress is not None

    def step(self, done: int, epoch: int, loss: float, rate: float) -> None:
        """Report a step."""
        if self.progress:
            speed = f"{rate:.0f} images/s"
            self.progress.update(self.task, completed=done, epoch=epoch + 1, loss=f"{loss:.3f}", rate=speed)

    def epoch(self, row: Mapping[str, Any], epochs: int) -> None:
        """Report the metrics of an epoch."""
        if self.console:
            self.console.print(_summary(row, epochs), highlight=False, soft_wrap=True)
        if self.board:
            for name, value in row.items():
                if isinstance(value, (int, float)) and name != "epoch":
                    self.board.add_scalar(name, value, row["epoch"])

    def note(self, sentence: str) -> None:
        """Print a warning."""
        if self.console:
            self.console.print(sentence, highlight=False, soft_wrap=True, markup=False)


def _summary(row: Mapping[str, Any], epochs: int) -> str:
    parts = [
        f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}",
        f"loss {row['loss']:.4f}",
        f"clean {row['clean']:.1%}",
    ]
    if row.get("probe") is not None:
        parts += [f"probe {row['probe']:.1%}", f"‖∇ℓ‖ {row['grad_norm']:.3g}"]
    best = "  best so far" if row["best"] else ""
    return "  ".join([*parts, f"{row['images_per_second']:.0f} images/s"]) + best


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "tensorboard = true needs the package tensorboard: pip install 'gradreg[tensorboard]'."
        ) from None
    return SummaryWriter(str(folder))
