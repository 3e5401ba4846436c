"""Recipes: TOML files, one a run. The first line is the command that carries it out, the second says what it is."""

import os
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from gradreg.errors import ConfigError
from gradreg.config import tables, toml
from gradreg.runs.settings import Config


def names() -> dict[str, str]:
    """What each recipe is, by name."""
    found = sorted(entry.name for entry in files(__package__).iterdir() if entry.name.endswith(".toml"))
    return {name.removesuffix(".toml"): _about(_packaged(name.removesuffix(".toml"))) for name in found}


def text(recipe: str | os.PathLike[str]) -> str:
    """A recipe of ours by name, or the user's own by the path of its .toml file."""
    path = Path(recipe)
    if path.suffix == ".toml":
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"The recipe {path} cannot be read ({error.strerror}).") from None
    known = names()
    if str(recipe) not in known:
        nearest = get_close_matches(str(recipe), known, n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"There is no recipe {str(recipe)!r} (did you mean {nearest!r}?): `gradreg recipes` lists them, and a file "
            "of yours is named by its path, ending in .toml."
        )
    return _packaged(str(recipe))


def config(recipe: str | os.PathLike[str], settings: Sequence[str] = ()) -> Config:
    """The recipe with `path.to.key=value` settings put in, checked."""
    table = toml.parse(text(recipe), f"The recipe {recipe}")
    return tables.build(Config, toml.override(table, settings))


def _packaged(name: str) -> str:
    return files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _about(recipe: str) -> str:
    return recipe.splitlines()[1].removeprefix("#").strip()
