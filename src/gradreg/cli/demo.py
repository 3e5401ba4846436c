"""`gradreg demo`."""

from dataclasses import dataclass, field
from typing import Annotated

from rich.console import Console

from gradreg.cli.arguments import Inline
from gradreg.demo import DemoOptions, demo
from gradreg.extras import need


@dataclass(frozen=True)
class Demo:
    """The tour: train four small networks on real digits, evaluate them and write a report (about three minutes).

    With --fast two networks and one threat, in less than a minute. Both times are of two cores.
    """

    options: Annotated[DemoOptions, Inline] = field(default_factory=DemoOptions)

    def run(self) -> None:
        for package in ("jinja2", "scipy"):
            need(package, "The demo")
        demo(self.options, Console())
