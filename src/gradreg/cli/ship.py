"""`gradreg ship`."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from gradreg.cli.arguments import Inline, TrustOption
from gradreg.report.cards.figures import Remarks
from gradreg.report.cards.shipping import ship


@dataclass(frozen=True, kw_only=True)
class Ship:
    """Make a run and its evaluation a network that `gradreg.load` knows by name, with a card and RobustBench fields."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run", metavar="RUN")]
    """The run directory; its best weights are shipped."""
    name: str
    """What it will be called, as in cifar10-l2."""
    evaluation: Path
    """The folder that `gradreg evaluate` wrote about this run; every figure of the card is from it."""
    remarks: Annotated[Remarks, Inline, tyro.conf.UseAppendAction] = field(default_factory=Remarks)
    to: Path | None = None
    """The folder that NAME goes into; default: the networks of the checkout that gradreg is installed from."""
    replace: bool = False
    """Overwrite a shipped network of that name."""
    data_dir: Path | None = None
    """Where data sets are stored; they are only read if the evaluation's .state was deleted."""
    trust: TrustOption = None

    def run(self) -> None:
        made = ship(
            self.run_dir,
            self.name,
            self.evaluation,
            to=self.to,
            replace=self.replace,
            remarks=self.remarks,
            data_dir=self.data_dir,
            trust=self.trust or False,
        )
        sys.stdout.write(f"{self.name} is in {made}.\n")
