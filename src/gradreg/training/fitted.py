"""A finished training run: its metrics, as a summary."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradreg.display.numbers import percent, significant
from gradreg.display.summary import Shown, Summary


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
