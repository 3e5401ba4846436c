"""The `gradreg` command: one file per subcommand, imported when it is asked for, so that `--help` answers at once."""

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, Protocol, Union

from gradreg._version import __version__
from gradreg.cli.faults import guarded, interrupts_end_at_once, interrupts_raise

_ABOUT = (
    "Adversarially robust image classifiers by input gradient regularization, and how robust they really are. "
    "`gradreg --version` says which gradreg this is."
)

# The module of this package and the class that bear the name, and what the command does.
_COMMANDS = {
    "demo": "Train four small networks on real digits, evaluate them and write a report (three to four minutes).",
    "models": "List the networks that `gradreg.build` knows.",
    "data": "Show a data set, or copy an image folder with smaller images.",
    "train": "Train by a recipe and write a run directory.",
    "recipes": "List the recipes that `gradreg train` knows, or show one.",
    "runs": "Compare training runs: settings that differ, accuracy, cost.",
    "evaluate": "Evaluate a model: attacks, bounds, diagnosis, certificates; the same command resumes.",
    "diagnose": "Test a model for gradient masking and misuse.",
    "inspect": "Inspect one image: nearest adversarial images, bounds and certificate, as PNG.",
    "curvature": "Measure the largest curvature of a model's loss, the radii that follow, and the λ of Prop. 3.1.",
    "report": "Compare evaluations: an HTML page, or tables and figures.",
    "networks": "List the trained networks that come with gradreg, or show the card of one.",
    "ship": "Make a run and its evaluation a network that `gradreg.load` knows by name.",
    "doctor": "Say what this installation consists of, and check that it computes what it should.",
    "completion": "Print a script for bash, zsh or fish that completes commands and options.",
}


class _Subcommand(Protocol):
    """What every command has."""

    def run(self) -> None: ...


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit status 2."""
    with interrupts_end_at_once(for_good=arguments is None), guarded():
        given = sys.argv[1:] if arguments is None else arguments
        if given and given[0] in _COMMANDS:
            _carry_out(*given)
        elif given == ["--version"]:
            sys.stdout.write(f"gradreg {__version__}\n")
        elif given and given[0] not in ("-h", "--help"):
            from gradreg.errors import ConfigError, did_you_mean

            raise ConfigError(
                f"There is no command {given[0]!r}{did_you_mean(given[0], _COMMANDS)}; gradreg has "
                f"{', '.join(_COMMANDS)}."
            )
        else:
            _list(given)


def commands() -> Iterator[tuple[str, type[_Subcommand], str]]:
    """Every command: its name, its class and what it does."""
    for name, about in _COMMANDS.items():
        yield name, _command(name), about


def _carry_out(name: str, *arguments: str) -> None:
    """Parse the arguments of one command and carry it out."""
    from gradreg.cli.parsing import parse

    command = _command(name)
    completed = getattr(command, "completed", list)
    parsed = parse(command, f"gradreg {name}", completed(list(arguments)))
    with interrupts_raise():
        parsed.run()


def _command(name: str) -> type[_Subcommand]:
    found: type[_Subcommand] = getattr(import_module(f"gradreg.cli.{name}"), name.capitalize())
    return found


def _list(arguments: list[str]) -> None:
    """Help, or a word that is no command: their names and what they do are all that is needed."""
    from dataclasses import make_dataclass

    import tyro
    from tyro.conf import subcommand

    named = [Annotated[make_dataclass(name, []), subcommand(name, description=d)] for name, d in _COMMANDS.items()]
    listed: Any = Union[tuple(named)]  # noqa: UP007, there is no other way to join types of a list
    tyro.cli(listed, prog="gradreg", args=arguments, description=_ABOUT)
