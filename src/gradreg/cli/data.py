"""`gradreg data`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from gradreg.checks.fields import check_fields
from gradreg.cli.arguments import DATA, DataDir
from gradreg.data import load
from gradreg.data.resize import Quality, ShorterSide, Workers, resize


@dataclass(frozen=True)
class Show:
    """Show what a data set holds, or which files are missing where."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(help=f"{DATA}.", metavar="NAME")]
    data_dir: DataDir = None

    def run(self) -> None:
        found = load(self.name, self.data_dir)
        classes = ", ".join(found.classes[:10]) + (", …" if len(found.classes) > 10 else "")
        sys.stdout.write(
            f"{found.name}: {len(found.train)} training and {len(found.test)} test images, "
            f"{len(found.classes)} classes ({classes})\n"
        )


@dataclass(frozen=True)
class Resize:
    """Copy an image folder with smaller images, for training phases at lower resolution; can be interrupted."""

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")]
    """The folder that holds train/ and val/."""
    destination: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DESTINATION")]
    """Where the copies go: a new folder, or one that the same command began to fill."""
    size: ShorterSide
    """The shorter side of the copies, in pixels; smaller images are not enlarged."""
    quality: Quality = 90
    """Of JPEG copies, 1 to 95; copies of PNG and other lossless files are PNG."""
    workers: Workers | None = None
    """Processes that copy; default: one per processor."""

    def __post_init__(self) -> None:
        check_fields(self)

    def run(self) -> None:
        console = Console(stderr=True)
        done = resize(
            self.source, self.destination, size=self.size, quality=self.quality, workers=self.workers, console=console
        )
        sys.stdout.write(f"{done.made} copies made, {done.kept} were there: {self.destination}\n")


@dataclass(frozen=True)
class Data:
    """Show a data set, or copy an image folder with smaller images. `gradreg data NAME` is short for `show NAME`."""

    what: Annotated[
        Annotated[Show, tyro.conf.subcommand("show")] | Annotated[Resize, tyro.conf.subcommand("resize")],
        tyro.conf.arg(name=""),
    ]

    @staticmethod
    def completed(arguments: list[str]) -> list[str]:
        """The arguments with `show` where it was left out."""
        return arguments if arguments[:1] in ([], ["show"], ["resize"], ["-h"], ["--help"]) else ["show", *arguments]

    def run(self) -> None:
        self.what.run()
