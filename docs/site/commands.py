"""`::: command evaluate` on a line of its own stands for the help of that command: every option and what it does."""

import io
import os
import re
from contextlib import redirect_stdout, suppress
from typing import NamedTuple
from unittest.mock import patch

from sphinx.application import Sphinx
from sphinx.util import logging

from gradreg.cli import commands
from gradreg.cli.parsing import parse

_NAME = re.compile(r"^::: command ([\w ]+)$", re.MULTILINE)
_DEFAULT = re.compile(r" ?\((default: .*?|required|repeatable)\)$")
# Wide enough that no explanation is broken over lines.
_SETTINGS = {"COLUMNS": "2000", "NO_COLOR": "1", "TERM": "dumb"}
_log = logging.getLogger(__name__)


class Option(NamedTuple):
    """An option or argument of a command."""

    name: str
    meaning: str
    default: str


class Help(NamedTuple):
    """What `gradreg COMMAND --help` says."""

    usage: str
    about: str
    options: list[Option]


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace names of commands as pages are read."""
    app.connect("source-read", _replace)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def names_in(text: str) -> list[str]:
    """The commands that a page documents."""
    return _NAME.findall(text)


def help_of(name: str) -> Help:
    """The help of a command, read from what it prints."""
    first, *rest = name.split()
    command = next(command for known, command, _ in commands() if known == first)
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with patch.dict(os.environ, _SETTINGS), redirect_stdout(said), suppress(SystemExit):
        parse(command, f"gradreg {first}", [*rest, "--help"])
    said.seek(0)
    lines = [line.rstrip() for line in said.read().splitlines()]
    boxed = [line.strip("│").rstrip()[1:] for line in lines if line.startswith("│")]
    plain = [line for line in lines if line and line[0] not in "│╭╰"]
    return Help(plain[0].removeprefix("usage: "), "\n\n".join(plain[1:]), list(_options(boxed)))


def _options(lines: list[str]) -> list[Option]:
    found: list[list[str]] = []
    for line in lines:
        if line[:1].strip():
            name, _, meaning = line.partition("  ")
            found.append([name.strip(), meaning.strip()])
        elif found and line.strip():
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    options = []
    for name, said in found:
        default = _DEFAULT.search(said)
        options.append(Option(name, _DEFAULT.sub("", said).strip(), default[1] if default else ""))
    return [option for option in options if not option.name.startswith("-h,")]


def _replace(_app: Sphinx, page: str, source: list[str]) -> None:
    def described(line: re.Match[str]) -> str:
        try:
            shown = help_of(line[1])
        except StopIteration:
            _log.warning("there is no command %s to document", line[1], location=page)
            return ""
        rows = [f"`{each.name}`\n: {_escaped(each.meaning)}{_note(each.default)}\n" for each in shown.options]
        return "\n".join([_escaped(shown.about), "", f"```text\n{shown.usage}\n```", "", *rows])

    source[0] = _NAME.sub(described, source[0])


def _note(default: str) -> str:
    return "" if default in ("", "default: none") else f" ({_escaped(default)})"


def _escaped(text: str) -> str:
    """Words as they are, and code between backticks as code."""
    parts = text.split("`")
    return "`".join(part if place % 2 else re.sub(r"([*_<>$\[\]])", r"\\\1", part) for place, part in enumerate(parts))
