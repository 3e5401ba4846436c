"""`gradreg completion`."""

import io
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import tyro
from tyro.conf import subcommand

from gradreg.cli import commands
from gradreg.cli.parsing import parse


@dataclass(frozen=True)
class Completion:
    """Print a script that completes commands and options when Tab is pressed.

    bash: eval "$(gradreg completion bash)" in ~/.bashrc.
    zsh: gradreg completion zsh > ~/.zfunc/_gradreg, with ~/.zfunc in fpath.
    fish: gradreg completion fish > ~/.config/fish/completions/gradreg.fish.
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """The shell to complete in."""

    def run(self) -> None:
        sys.stdout.write(script(self.shell))


def script(shell: str) -> str:
    """The script, made from the options of every command."""
    named = [Annotated[command, subcommand(name, description=about)] for name, command, about in commands()]
    all_of_them: Any = Union[tuple(named)]  # noqa: UP007, there is no other way to join types of a list
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        parse(all_of_them, "gradreg", ["--tyro-print-completion", shell])
    # Bash completes file names where the script has nothing to offer, such as after --out.
    return text.getvalue().replace("complete -F", "complete -o default -F")
