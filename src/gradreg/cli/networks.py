"""Trained networks by name: `gradreg networks` and `ship`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Networks:
    """List the trained networks that come with gradreg, or show the card of one."""

    name: tyro.conf.Positional[str | None] = None
    """The network whose card to show."""

    def run(self) -> None:
        from gradreg.runs import networks
        from gradreg.runs.listing import listing

        sys.stdout.write(listing() if self.name is None else networks.card(self.name))


@dataclass(frozen=True, kw_only=True)
class Ship:
    """Make a run and its evaluation a network that `gradreg.load` knows by name, with a card and RobustBench fields."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """The run directory; its best weights are shipped."""
    name: str
    """What it will be called, as in cifar10-l2."""
    evaluation: Path
    """The folder that `gradreg evaluate` wrote about this run; every figure of the card is from it."""
    note: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A sentence for the card and the footnotes, as what is special about the images; may be repeated."""
    trained_on: str = ""
    """The machine that it was trained on, for the card; else what the run wrote down."""
    authors: str = ""
    """Whose network it is, for robustbench.json."""
    link: str = ""
    """Where it is described, for robustbench.json."""
    venue: str = "N/A"
    """Where it was published, for robustbench.json."""
    to: Path | None = None
    """The folder that NAME goes into; else the networks of the checkout that gradreg is installed from."""
    replace: bool = False
    """Write over a shipped network of that name."""
    data_dir: Path | None = None
    """Where data sets lie; they are only looked at if the evaluation's .state was deleted."""

    def run(self) -> None:
        from gradreg.report.cards.figures import Remarks
        from gradreg.report.cards.shipping import ship

        remarks = Remarks(self.note, self.trained_on, self.authors, self.link, self.venue)
        made = ship(
            self.run_dir,
            self.name,
            self.evaluation,
            to=self.to,
            replace=self.replace,
            remarks=remarks,
            data_dir=self.data_dir,
        )
        sys.stdout.write(f"{self.name} is in {made}.\n")
