"""`gradreg demo`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Demo:
    """The tour: train four small networks on real digits, evaluate them and write a report (three to four minutes)."""

    out: Path = Path("runs/demo")
    """Where its runs, evaluations and report.html go; started again there, it goes on where it was."""
    images: int = 48
    """Test images to evaluate on."""
    epochs: int = 4
    """Of each training: equal, so that costs compare."""
    seed: int = 0
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.demo import demo

        demo(self.out, self.images, self.epochs, self.seed, self.data_dir, Console())
