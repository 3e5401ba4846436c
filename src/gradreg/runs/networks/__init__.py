"""Trained networks that come with the package: a small run directory each, with a model card.

config.toml              the recipe
best.safetensors         the weights
metrics.jsonl            one line per epoch of its training
card.md                  the model card: intended use, results and how to reproduce them
robustbench.json         for each threat, the fields of a RobustBench entry
curve.svg                robust accuracy against distance, for the card; networks of before it have none
"""

import os
from importlib.resources import files
from pathlib import Path

from gradreg.errors import ModelError, did_you_mean
from gradreg.reading import read_text

CONFIG, WEIGHTS, METRICS, CARD, ENTRIES = FILES = (
    "config.toml",
    "best.safetensors",
    "metrics.jsonl",
    "card.md",
    "robustbench.json",
)
CURVE = "curve.svg"


def home() -> Path:
    """The folder that holds the networks."""
    return Path(str(files(__package__)))


def names() -> tuple[str, ...]:
    """The networks of this installation; an incomplete folder does not count."""
    found = (path for path in home().iterdir() if all((path / name).is_file() for name in FILES))
    return tuple(sorted(path.name for path in found))


def folder(name: str) -> Path:
    """The run directory of a shipped network; it is never written to."""
    if name not in names():
        raise ModelError(f"There is no shipped network {name!r}{hint(name)}.")
    return home() / name


def card(name: str) -> str:
    """The model card of a shipped network, as Markdown."""
    return read_text(folder(name) / CARD)


def resolve(source: str | os.PathLike[str]) -> Path:
    """The run directory of a path or name; a run directory of that name takes precedence over a shipped network."""
    path, name = Path(source), os.fspath(source)
    return path if (path / CONFIG).is_file() or name not in names() else home() / name


def hint(name: str) -> str:
    """The end of an error about an unknown name: the closest one, and all of them."""
    known = names()
    if not known:
        return ": this installation has none"
    return f"{did_you_mean(name, known)}: choose one of {', '.join(known)}"
