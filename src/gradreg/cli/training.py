"""From data to a trained network: `gradreg models`, `data`, `recipes`, `train` and `runs`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Models:
    """List the networks that `gradreg.build` knows."""

    def run(self) -> None:
        from gradreg.models import names

        for name, description in names().items():
            sys.stdout.write(f"{name:16} {description}\n")


@dataclass(frozen=True)
class DataShow:
    """Look at a data set: what it holds, or which files are wanted where."""

    name: tyro.conf.Positional[str]
    """mnist5k, fashion-mnist, cifar10 or folder:PATH."""
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from gradreg.data import load

        found = load(self.name, self.data_dir)
        classes = ", ".join(found.classes[:10]) + (", …" if len(found.classes) > 10 else "")
        sys.stdout.write(
            f"{found.name}: {len(found.train)} training and {len(found.test)} test images, "
            f"{len(found.classes)} classes ({classes})\n"
        )


@dataclass(frozen=True)
class DataResize:
    """Copy an image folder with smaller images, for training phases that need no larger ones; can be interrupted."""

    source: tyro.conf.Positional[Path]
    """The folder that holds train/ and val/."""
    destination: tyro.conf.Positional[Path]
    """Where the copies go: a new folder, or one that the same command began to fill."""
    size: int
    """The shorter side of the copies, in pixels; smaller images are not enlarged."""
    quality: int = 90
    """Of JPEG copies, 1 to 95; copies of PNG and other lossless files are PNG."""
    workers: int | None = None
    """Processes that copy; else as many as there are processors."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.data.resize import resize

        done = resize(
            self.source,
            self.destination,
            size=self.size,
            quality=self.quality,
            workers=self.workers,
            console=Console(stderr=True),
        )
        sys.stdout.write(f"{done.made} copies made, {done.kept} were there: {self.destination}\n")


@dataclass(frozen=True)
class Data:
    """Look at a data set, or copy an image folder with smaller images."""

    what: Annotated[
        Annotated[DataShow, tyro.conf.subcommand("show")] | Annotated[DataResize, tyro.conf.subcommand("resize")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> None:
        self.what.run()


@dataclass(frozen=True)
class Train:
    """Carry out a recipe and write a run directory; torchrun -m gradreg train … does it with several processes."""

    recipe: tyro.conf.Positional[str | None] = None
    """A name that `gradreg recipes` lists, or the path of a .toml file; with --resume it may be left out."""
    run_dir: Annotated[Path, tyro.conf.arg(name="run", aliases=("--run-dir",))] = Path("runs/latest")
    """The run directory; unless --resume is given it must be empty or new. Under torchrun write --run-dir."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A setting to change, as in --set epochs=30 --set objective.lam=1."""
    resume: bool = False
    """Continue the run in the directory, from its newest checkpoint."""
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.cli.train import carry_out

        sys.exit(carry_out(self.recipe, self.run_dir, self.set, self.resume, self.data_dir, Console()))


@dataclass(frozen=True)
class Recipes:
    """List the recipes that `gradreg train` knows, or show one."""

    name: tyro.conf.Positional[str | None] = None
    """The recipe to show."""

    def run(self) -> None:
        from gradreg.runs import recipes

        if self.name is not None:
            sys.stdout.write(recipes.text(self.name))
            return
        for name, description in recipes.names().items():
            sys.stdout.write(f"{name:26} {description}\n")


@dataclass(frozen=True)
class Runs:
    """Put training runs side by side: the settings they differ in, what each reached, what it cost."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write; else to stdout."""
    format: Literal["md", "tex", "csv", "json"] = "md"

    def run(self) -> None:
        from gradreg.report.command import compare_runs

        sys.stdout.write(compare_runs(self.runs, self.format, self.output))
