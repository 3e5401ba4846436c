"""Recipes: TOML files, one per run. The first line is the command that runs it, the second describes it."""

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from gradreg.config import tables, toml
from gradreg.errors import ConfigError, did_you_mean
from gradreg.runs.settings import Config


def names() -> dict[str, str]:
    """The description of each recipe, by name."""
    found = sorted(entry.name for entry in files(__package__).iterdir() if entry.name.endswith(".toml"))
    return {name.removesuffix(".toml"): _about(_packaged(name.removesuffix(".toml"))) for name in found}


def text(recipe: str | os.PathLike[str]) -> str:
    """A packaged recipe by name, or a user's own by the path of its .toml file."""
    path = Path(recipe)
    if path.suffix == ".toml":
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"The recipe {path} cannot be read ({error.strerror}).") from None
    known = names()
    if str(recipe) not in known:
        raise ConfigError(
            f"There is no recipe {str(recipe)!r}{did_you_mean(recipe, known)}: `gradreg recipes` lists them; pass your "
            "own as the path of a .toml file."
        )
    return _packaged(str(recipe))


def config(recipe: str | os.PathLike[str], settings: Sequence[str] = ()) -> Config:
    """The checked settings of a recipe, with `path.to.key=value` overrides."""
    table = toml.parse(text(recipe), f"The recipe {recipe}")
    return tables.build(Config, toml.override(table, settings))


def _packaged(name: str) -> str:
    return files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _about(recipe: str) -> str:
    return recipe.splitlines()[1].removeprefix("#").strip()
