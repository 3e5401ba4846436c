"""A command from its words: whatever is wrong with them is told in one sentence."""

from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import fields, is_dataclass
from io import StringIO
from itertools import dropwhile, takewhile
from typing import Any, TypeVar, get_args, get_type_hints

import tyro

from gradreg.cli.arguments import REGISTRY
from gradreg.errors import ConfigError, did_you_mean
from gradreg.runs.trust import EVERYTHING, are_packages

T = TypeVar("T")


def parse(command: type[T], prog: str, arguments: list[str]) -> T:
    """The command with its arguments."""
    given = _with_trust(arguments)
    printed = StringIO()
    try:
        with redirect_stderr(printed):
            found, unknown = tyro.cli(command, prog=prog, args=given, registry=REGISTRY, return_unknown_args=True)
    except SystemExit as end:
        if not end.code:  # help was asked for
            raise
        # A misspelt option leaves its value behind, which is then taken for something else: so it is told first.
        _refuse_unknown(command, prog, [word for word in given if word.startswith("--")])
        raise ConfigError(f"{_message(printed.getvalue())} See {prog} --help.") from None
    _refuse_unknown(command, prog, unknown)
    return found


def _refuse_unknown(command: Any, prog: str, words: list[str]) -> None:
    flags = {"--help", *_flags(command)}
    for word in words:
        name = word.partition("=")[0]
        if name.replace("_", "-") not in flags:
            raise ConfigError(f"{prog} takes no {name!r}{did_you_mean(name, flags)}: see {prog} --help.")


def _message(printed: str) -> str:
    """What tyro says in a frame, of lines or of ASCII: the first lines below the title."""
    texts = [line.strip("│| ") for line in printed.splitlines()[1:]]
    below = dropwhile(_is_rule, texts)
    return f"{' '.join(takewhile(lambda text: not _is_rule(text), below)).rstrip('.')}."


def _is_rule(text: str) -> bool:
    return not text.strip("─-╰╯")


def _flags(command: Any) -> Iterator[str]:
    """The options of a command, as they are typed."""
    hints = get_type_hints(command)
    for each in fields(command):
        inner = [part for part in (hints[each.name], *get_args(hints[each.name])) if is_dataclass(part)]
        yield from (flag for part in inner for flag in _flags(part))
        if not inner:
            name = each.name.replace("_", "-")
            yield from (f"--{name}", *([f"--no-{name}"] if hints[each.name] is bool else []))


def _with_trust(arguments: list[str]) -> list[str]:
    """`--trust` with no package after it means whatever a file names."""
    following = [*arguments, ""][1:]
    return [
        f"--trust={EVERYTHING}" if word == "--trust" and not are_packages(after) else word
        for word, after in zip(arguments, following, strict=True)
    ]
