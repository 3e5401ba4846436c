"""A command from its words: whatever is wrong with them is told in one sentence."""

import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import fields, is_dataclass
from io import StringIO
from itertools import dropwhile, takewhile
from typing import Any, TypeVar, get_args, get_type_hints

import tyro
from tyro.conf import Positional

from gradreg.cli.arguments import REGISTRY
from gradreg.display.numbers import listed
from gradreg.errors import ConfigError, did_you_mean
from gradreg.runs.trust import EVERYTHING, are_packages

T = TypeVar("T")

_POSITIONAL: Any = Positional
# In tyro's frame the arguments are indented, and what they are for further still.
_MISSING = re.compile(r" {5}\S")


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
    for word in unknown:
        raise _unknown(command, prog, word)
    return found


def _refuse_unknown(command: Any, prog: str, words: list[str]) -> None:
    flags = {"--help", *_flags(command)}
    for word in words:
        if word.partition("=")[0].replace("_", "-") not in flags:
            raise _unknown(command, prog, word)


def _unknown(command: Any, prog: str, word: str) -> ConfigError:
    name, flags = word.partition("=")[0], set(_flags(command))
    if name == "--help" or name in flags:  # with a value that it does not take
        return ConfigError(f"{prog} takes no {word!r}: see {prog} --help.")
    return ConfigError(f"{prog} takes no {name!r}{did_you_mean(name, {'--help', *flags})}: see {prog} --help.")


def _message(printed: str) -> str:
    """What tyro says in a frame, of lines or of ASCII: the arguments that are missing, or the first lines."""
    lines = [line[1:].rstrip("│| ") for line in printed.splitlines()[1:]]
    said = list(takewhile(lambda line: not _is_rule(line), dropwhile(_is_rule, lines)))
    if said and said[0].startswith(" Missing from"):
        return f"{listed([line.strip() for line in said if _MISSING.match(line)])} must be given."
    return f"{' '.join(line.strip() for line in said).rstrip('.')}."


def _is_rule(text: str) -> bool:
    return not text.strip("─-╰╯ ")


def _flags(command: Any) -> Iterator[str]:
    """The options of a command, as they are typed."""
    hints, marked = get_type_hints(command), get_type_hints(command, include_extras=True)
    for each in fields(command):
        inner = [part for part in (hints[each.name], *get_args(hints[each.name])) if is_dataclass(part)]
        yield from (flag for part in inner for flag in _flags(part))
        marks = getattr(marked[each.name], "__metadata__", ())
        if not inner and _POSITIONAL not in marks:
            names = [mark.name for mark in marks if getattr(mark, "name", None)] or [each.name.replace("_", "-")]
            yield from (f"--{name}" for name in names)
            yield from (f"--no-{name}" for name in names if hints[each.name] is bool)
            yield from (alias for mark in marks for alias in getattr(mark, "aliases", None) or ())


def _with_trust(arguments: list[str]) -> list[str]:
    """`--trust` with no package after it means whatever a file names."""
    following = [*arguments, ""][1:]
    return [
        f"--trust={EVERYTHING}" if word == "--trust" and not are_packages(after) else word
        for word, after in zip(arguments, following, strict=True)
    ]
