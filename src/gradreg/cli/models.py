"""`gradreg models`."""

import sys
from dataclasses import dataclass

from gradreg.models import names


@dataclass(frozen=True)
class Models:
    """List the networks that `gradreg.build` knows."""

    def run(self) -> None:
        for name, description in names().items():
            sys.stdout.write(f"{name:16} {description}\n")
