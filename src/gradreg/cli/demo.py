"""`gradreg demo`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Demo:
    """Train a small network on real digits plainly and with the penalty, and compare them (under a minute)."""

    epochs: int = 6
    seed: int = 0
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.demo import demo

        demo(self.epochs, self.seed, self.data_dir, Console())
