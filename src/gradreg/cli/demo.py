"""`gradreg demo`."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gradreg.cli.arguments import DataDir
from gradreg.demo import demo
from gradreg.extras import need


@dataclass(frozen=True)
class Demo:
    """The tour: train four small networks on real digits, evaluate them and write a report (three to four minutes)."""

    out: Path = Path("runs/demo")
    """Where its runs, evaluations and report.html go; started again there, it resumes."""
    images: int = 48
    """Test images to evaluate on."""
    epochs: int = 4
    """Of each training: equal, so that costs compare."""
    seed: int = 0
    data_dir: DataDir = None

    def run(self) -> None:
        for package in ("jinja2", "scipy"):
            need(package, "The demo")
        demo(self.out, self.images, self.epochs, self.seed, self.data_dir, Console())
