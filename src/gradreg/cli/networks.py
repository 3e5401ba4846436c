"""`gradreg networks`."""

import sys
from dataclasses import dataclass

import tyro

from gradreg.runs import networks
from gradreg.runs.listing import listing


@dataclass(frozen=True)
class Networks:
    """List the trained networks that come with gradreg, or show the card of one."""

    name: tyro.conf.Positional[str | None] = None
    """The network whose card to show."""

    def run(self) -> None:
        sys.stdout.write(listing() if self.name is None else networks.card(self.name))
