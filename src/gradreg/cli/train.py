"""`gradreg train`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from gradreg.cli.arguments import DataDir, TrustOption, say
from gradreg.errors import ConfigError, Interrupted
from gradreg.processes import speaks
from gradreg.runs import recipes
from gradreg.runs.directory import CONFIG, RunDirectory
from gradreg.runs.settings import Config
from gradreg.training.fitted import Fitted
from gradreg.training.fitting import train


@dataclass(frozen=True)
class Train:
    """Train by a recipe and write a run directory; `torchrun -m gradreg train …` uses several processes.

    Exit status 0, or 128 plus the signal's number when one stopped the run.
    """

    recipe: tyro.conf.Positional[str | None] = None
    """A name that `gradreg recipes` lists, or the path of a .toml file; optional with --resume."""
    run_dir: Annotated[Path, tyro.conf.arg(name="run", aliases=("--run-dir",))] = Path("runs/latest")
    """The run directory; without --resume it must be empty or new. Under torchrun write --run-dir."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A setting to change, as in --set epochs=30 --set objective.lam=1."""
    resume: bool = False
    """Continue the run in the directory, from its newest checkpoint."""
    data_dir: DataDir = None
    trust: TrustOption = None

    def run(self, console: Console | None = None) -> None:
        console, config = console or Console(), self._config()
        try:
            fitted = train(config, self.run_dir, resume=self.resume, console=console, data_dir=self.data_dir)
            status, summary = 0, _summary(fitted)
        except Interrupted as stop:
            status, summary = 128 + stop.signal, str(stop)
        if speaks():
            say(console, summary)
        sys.exit(status)

    def _config(self) -> Config:
        if self.recipe is not None:
            return recipes.config(self.recipe, self.set, trust=self.trust or False)
        if not self.resume:
            raise ConfigError("Expected a recipe: `gradreg recipes` lists them. Only --resume can do without.")
        run = RunDirectory(self.run_dir)
        run.settings()  # what is wrong in the file is not wrong in --set
        return recipes.settled(run.config(), self.set, str(run.folder / CONFIG), self.trust or False)


def _summary(fitted: Fitted) -> str:
    best = fitted.best
    robust = "" if best.get("probe") is None else f", {best['probe']:.1%} under the probe"
    return f"Best epoch {best['epoch']}: {best['clean']:.1%} of held-out images right{robust}; it is in {fitted.run}."
