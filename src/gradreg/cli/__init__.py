"""The `gradreg` command. Each subcommand is a dataclass of its options; what it does is imported when it runs."""

import sys
from typing import Annotated, Protocol

import tyro
from tyro.conf import subcommand

from gradreg.cli.demo import Demo
from gradreg.cli.examination import Diagnose, Evaluate, Inspect, Report
from gradreg.cli.networks import Networks, Ship
from gradreg.cli.training import Data, Models, Recipes, Runs, Train
from gradreg.errors import GradregError

Command = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Models, subcommand("models")]
    | Annotated[Data, subcommand("data")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Recipes, subcommand("recipes")]
    | Annotated[Runs, subcommand("runs")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Diagnose, subcommand("diagnose")]
    | Annotated[Inspect, subcommand("inspect")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Networks, subcommand("networks")]
    | Annotated[Ship, subcommand("ship")]
)


class Subcommand(Protocol):
    """What all of the above have in common."""

    def run(self) -> None: ...


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit status 2."""
    given = _with_show(sys.argv[1:] if arguments is None else arguments)
    command: Subcommand = tyro.cli(Command, prog="gradreg", args=given, description=_ABOUT)
    run(command)


def run(command: Subcommand) -> None:
    """Carry out a command, with a user's mistake as one sentence."""
    try:
        command.run()
    except GradregError as mistake:
        sys.stderr.write(f"gradreg: {mistake}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _with_show(arguments: list[str]) -> list[str]:
    """`gradreg data NAME` is short for `gradreg data show NAME`."""
    if arguments[:1] != ["data"] or arguments[1:2] in ([], ["show"], ["resize"], ["-h"], ["--help"]):
        return arguments
    return ["data", "show", *arguments[1:]]


_ABOUT = "Adversarially robust image classifiers by input gradient regularization, and how robust they really are."
