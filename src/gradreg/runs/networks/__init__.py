"""Trained networks that come with the package, a folder each: a run directory in miniature, with its card.

config.toml              the recipe
best.safetensors         the weights
metrics.jsonl            one line an epoch of its training
card.md                  what it is, what it is for, its figures and how to make them again
robustbench.json         for each threat, the fields of a RobustBench entry
"""

import os
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from gradreg.errors import ModelError

CONFIG, WEIGHTS, METRICS, CARD, ENTRIES = FILES = (
    "config.toml",
    "best.safetensors",
    "metrics.jsonl",
    "card.md",
    "robustbench.json",
)


def home() -> Path:
    """Where they lie."""
    return Path(str(files(__package__)))


def names() -> tuple[str, ...]:
    """The networks that this installation has; a folder that lacks a file is none."""
    found = (path for path in home().iterdir() if all((path / name).is_file() for name in FILES))
    return tuple(sorted(path.name for path in found))


def folder(name: str) -> Path:
    """The run directory of a shipped network; it is never written to."""
    if name not in names():
        raise ModelError(f"There is no shipped network {name!r}{hint(name)}.")
    return home() / name


def card(name: str) -> str:
    """What a shipped network is, what it is for and how robust it is, as Markdown."""
    return (folder(name) / CARD).read_text(encoding="utf-8")


def resolve(source: str | os.PathLike[str]) -> Path:
    """The run directory that a path or a name stands for; a run of that name in the working directory comes first."""
    path, name = Path(source), os.fspath(source)
    return path if (path / CONFIG).is_file() or name not in names() else home() / name


def hint(name: str) -> str:
    """The end of a sentence about an unknown name."""
    known = names()
    if not known:
        return ": none came with this installation"
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    nearest = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{nearest}: there are {', '.join(known)}"
