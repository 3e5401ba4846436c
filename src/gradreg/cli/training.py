"""From data to a trained network: `gradreg models`, `data`, `recipes` and `train`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Models:
    """List the networks that `gradreg.build` knows."""

    def run(self) -> None:
        from gradreg.models import names

        for name, description in names().items():
            sys.stdout.write(f"{name:16} {description}\n")


@dataclass(frozen=True)
class Data:
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
class Train:
    """Carry out a recipe and write a run directory; torchrun -m gradreg train … does it with several processes."""

    recipe: tyro.conf.Positional[str | None] = None
    """A name that `gradreg recipes` lists, or the path of a .toml file; with --resume it may be left out."""
    run_dir: Annotated[Path, tyro.conf.arg(name="run")] = Path("runs/latest")
    """The run directory; unless --resume is given it must be empty or new."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A setting to change, as in --set epochs=30 --set objective.lam=1."""
    resume: bool = False
    """Continue the run in the directory, from its newest checkpoint."""
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.training.command import carry_out

        sys.exit(carry_out(self.recipe, self.run_dir, self.set, self.resume, self.data_dir, Console()))


@dataclass(frozen=True)
class Recipes:
    """List the recipes that `gradreg train` knows, or show one."""

    name: tyro.conf.Positional[str | None] = None
    """The recipe to show."""

    def run(self) -> None:
        from gradreg import recipes

        if self.name is not None:
            sys.stdout.write(recipes.text(self.name))
            return
        for name, description in recipes.names().items():
            sys.stdout.write(f"{name:26} {description}\n")
