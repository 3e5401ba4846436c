"""What `gradreg train` does."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gradreg.config import tables, toml
from gradreg.errors import ConfigError, Interrupted
from gradreg.processes import speaks
from gradreg.runs import recipes
from gradreg.runs.directory import RunDirectory
from gradreg.runs.settings import Config
from gradreg.training.fitting import Fitted, train


def carry_out(
    recipe: str | None, run: Path, settings: Sequence[str], resume: bool, data_dir: Path | None, console: Console
) -> int:
    """Train, and return the exit status: 0, or 128 and the signal's number when one stopped the run."""
    config = _config(recipe, run, settings, resume)
    try:
        fitted = train(config, run, resume=resume, console=console, data_dir=data_dir)
        status, summary = 0, _summary(fitted)
    except Interrupted as stop:
        status, summary = 128 + stop.signal, str(stop)
    if speaks():
        console.print(summary, highlight=False, soft_wrap=True)
    return status


def _summary(fitted: Fitted) -> str:
    best = fitted.best
    robust = "" if best.get("probe") is None else f", {best['probe']:.1%} under the probe"
    return f"Best epoch {best['epoch']}: {best['clean']:.1%} of held-out images right{robust}; it is in {fitted.run}."


def _config(recipe: str | None, run: Path, settings: Sequence[str], resume: bool) -> Config:
    if recipe is not None:
        return recipes.config(recipe, settings)
    if not resume:
        raise ConfigError("Which recipe? `gradreg recipes` lists them; one may only be left out with --resume.")
    return tables.build(Config, toml.override(RunDirectory(run).config(), settings))
