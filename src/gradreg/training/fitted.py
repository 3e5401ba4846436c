"""A finished training run: its metrics, as a summary and drawn."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradreg.display import charts
from gradreg.display.charts import Chart, Key, Look, Series
from gradreg.display.numbers import percent, significant
from gradreg.display.plot import plot
from gradreg.display.summary import Shown, Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Fitted(Shown):
    """A finished run: the metrics of each epoch, those of the best epoch, and the run directory, if there is one."""

    metrics: list[dict[str, Any]]
    best: dict[str, Any]
    run: Path | None

    def summary(self) -> Summary:
        """The best epoch, and what the training cost."""
        best, last = self.best, self.metrics[-1] if self.metrics else self.best
        probe, hours = best.get("probe"), last.get("hours")
        return Summary(
            f"Fitted: epoch {best['epoch']} of {len(self.metrics)} is the best",
            [
                ("clean accuracy", percent(best["clean"])),
                ("probe accuracy", "" if probe is None else f"{percent(probe)}, by a weak attack on held-out images"),
                ("loss", f"{significant(best['loss'])}, at the end {significant(last['loss'])}"),
                ("time", "" if hours is None else f"{significant(60 * hours)} minutes"),
                ("run", "" if self.run is None else str(self.run)),
            ],
        )

    def plot(self) -> "Figure":
        """The loss of each epoch, and clean and probe accuracy on held-out images; with matplotlib."""
        epochs = charts.counts("epoch", float(max(row["epoch"] for row in self.metrics)))
        loss = _line(self.metrics, "loss", "training loss", "solid")
        kinds: tuple[tuple[str, str, Look], ...] = (("clean", "clean", "solid"), ("probe", "probe", "dashed"))
        accuracies = [_line(self.metrics, key, name, look) for key, name, look in kinds]
        shown = tuple(line for line in accuracies if line.x)
        height = charts.linear("training loss", 1.05 * max([*loss.y, 1e-9]), significant)
        keys = tuple(Key(line.name, None, line.look) for line in shown)
        left = Chart("loss", epochs, height, (loss,), f"Training loss: {significant(loss.y[-1])} at the end.")
        said = " ".join(f"{line.name}: {percent(line.y[-1])} at the end." for line in shown)
        right = Chart("held-out images", epochs, charts.fractions("accuracy"), shown, said, legend=keys)
        return plot(charts.Figure("training", ((left, right),), 2.25))


def _line(rows: list[dict[str, Any]], key: str, name: str, look: Look) -> Series:
    known = [(float(row["epoch"]), float(row[key])) for row in rows if row.get(key) is not None]
    return Series(name, [epoch for epoch, _ in known], [value for _, value in known], "line", 0, look)
