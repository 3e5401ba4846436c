"""Recipes: TOML files, one per run. The first line is the command that runs it, the second describes it."""

import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from gradreg.config import tables, toml
from gradreg.errors import ConfigError, DataError, did_you_mean
from gradreg.reading import read_toml
from gradreg.runs.settings import Config
from gradreg.runs.trust import Trust, check_trusted


def names() -> dict[str, str]:
    """The description of each recipe, by name."""
    found = sorted(entry.name for entry in files(__package__).iterdir() if entry.name.endswith(".toml"))
    return {name.removesuffix(".toml"): _about(_packaged(name.removesuffix(".toml"))) for name in found}


def text(recipe: str | os.PathLike[str]) -> str:
    """A packaged recipe by name, or a user's own by the path of its .toml file."""
    path = Path(recipe)
    if path.suffix == ".toml":
        try:
            return read_toml(path)
        except DataError as error:
            raise ConfigError(f"The recipe {error}") from None
    known = names()
    if str(recipe) not in known:
        raise ConfigError(
            f"There is no recipe {str(recipe)!r}{did_you_mean(recipe, known)}: `gradreg recipes` lists them; pass your "
            "own as the path of a .toml file."
        )
    return _packaged(str(recipe))


def config(recipe: str | os.PathLike[str], settings: Sequence[str] = (), *, trust: Trust = False) -> Config:
    """The checked settings of a recipe, with `path.to.key=value` overrides.

    A recipe that names code of your own as its model needs `trust`: True, or the name of the package.
    """
    table = toml.parse(text(recipe), f"The recipe {recipe}")
    return settled(table, settings, f"The recipe {recipe}", trust)


def settled(table: Mapping[str, Any], settings: Sequence[str], source: str, trust: Trust) -> Config:
    """The checked settings of a table from a file, with overrides; the code that it names must be trusted."""
    found = tables.build(Config, toml.override(table, settings))
    check_trusted(found.model, source, trust, settings)
    return found


def _packaged(name: str) -> str:
    return files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _about(recipe: str) -> str:
    return recipe.splitlines()[1].removeprefix("#").strip()
