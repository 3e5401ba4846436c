"""A copy of a run whose best weights are in half precision: a network of half the size, to be evaluated and shipped."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from gradreg.errors import ConfigError
from gradreg.runs import RunDirectory

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class HalvedOptions:
    """Copy a run with its best weights as float16, which are evaluated, shipped and loaded as any others."""

    run: Positional[Path]
    """A run directory of `gradreg train`."""
    to: Positional[Path]
    """The run directory of the copy."""


def halved(run: Path, to: Path) -> None:
    """Write the recipe, the metrics and the rounded weights of `run` to the folder `to`.

    The metrics are those of the weights as they were trained, so figures are to be taken from an evaluation of `to`.
    """
    found, made = RunDirectory(run), RunDirectory(to)
    recipe, best = found.config(), found.weights("best")
    if to.exists():
        raise ConfigError(f"{to} exists: choose another folder.")
    rounded = {name: value.half() if value.is_floating_point() else value for name, value in best.tensors.items()}
    for name, value in rounded.items():
        if not bool(value.isfinite().all()):
            raise ConfigError(f"{name!r} of {run} has values beyond those of half precision.")
    made.start(recipe)
    for row in found.metrics():
        made.add_metrics(row)
    made.save_weights("best", rounded, best.numbers["metrics"])


def show(options: HalvedOptions, console: "Console") -> None:
    """Where the copy is."""
    halved(options.run, options.to)
    console.print(f"{options.to} has the weights of {options.run} in half precision.")
