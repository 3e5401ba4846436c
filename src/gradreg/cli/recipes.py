"""`gradreg recipes`."""

import sys
from dataclasses import dataclass

import tyro

from gradreg.runs import recipes


@dataclass(frozen=True)
class Recipes:
    """List the recipes that `gradreg train` knows, or show one."""

    name: tyro.conf.Positional[str | None] = None
    """The recipe to show."""

    def run(self) -> None:
        if self.name is not None:
            sys.stdout.write(recipes.text(self.name))
            return
        for name, description in recipes.names().items():
            sys.stdout.write(f"{name:26} {description}\n")
