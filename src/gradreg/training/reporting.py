"""Progress of a run: a live bar on a terminal or in a notebook, and a line per epoch on a console."""

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from rich.console import Console

from gradreg.progress import Bar, bar


class Reporter:
    """Prints steps, epochs and warnings to a console; without one nothing, but for the bar of a notebook."""

    def __init__(self, console: Console | None) -> None:
        self.console = console
        self._bar, self._steps, self._open = Bar(), 0, ExitStack()

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._open.__exit__(kind, value, at)

    def begin(self, steps: int, done: int) -> None:
        """Show the progress of a run of `steps` steps, of which `done` are done."""
        self._bar, self._steps = self._open.enter_context(bar("training", self.console)), steps
        self._bar(done, steps)

    @property
    def wants_loss(self) -> bool:
        """Whether the loss of a step would be seen now, and so is worth fetching from the device."""
        return self._bar.due

    def step(self, done: int, epoch: int, loss: float | None, rate: float) -> None:
        """Report a step."""
        note = "" if loss is None else f"epoch {epoch + 1}  loss {loss:.3f}  {rate:.0f} images/s"
        self._bar(done, self._steps, note)

    def epoch(self, row: Mapping[str, Any], epochs: int) -> None:
        """Report the metrics of an epoch."""
        if self.console:
            self.console.print(_summary(row, epochs), highlight=False, soft_wrap=True)

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
