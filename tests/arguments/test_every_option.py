"""Every number that a command takes, with what it must not be: one sentence and status 2, before anything is begun."""

import math
import re
from typing import Any, get_type_hints

import pytest

from arguments.options import Option, options
from arguments.spoiled import kinds, limits_of
from commands import status
from gradreg import cli
from gradreg.checks.scalars import Range
from gradreg.objectives import Gradient
from gradreg.runs import SGD, Config, Probe

WRONG = ["nan", "inf", "-inf", "-1", "0", "1.5", "1e39", "1e-300", "1000000000000", "1" + 400 * "0", "text", "", "8/0"]
OPTIONS = options()
_BEGUN = 99


# Of each number in a text with commas; an empty text is none.
_LISTS = {
    "smoothing": Range(above=0),
    "radii": Range(least=0),
    "mean": Range(),
    "std": Range(above=0),
    "autoattack": Range(above=math.inf),
}
_EMPTY = {"smoothing", "autoattack"}


def possible(option: Option, text: str) -> bool:
    """Whether the limits of the option allow it."""
    hint, name = option.argument.hint, option.argument.name
    if not re.fullmatch(r"-?[0-9.]{1,20}", text):
        return text == "" and name in _EMPTY
    if text == "1.5" and float not in kinds(hint) and name not in _LISTS:
        return False
    limits = _LISTS.get(name) or limits_of(hint)
    assert limits is not None, f"--{name} has no limits"
    return float(text) in limits and (limits.ends is None or float(text) <= limits.ends)


@pytest.fixture
def beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that begins ends with a status of its own."""

    def begin(self: Any) -> None:
        raise SystemExit(_BEGUN)

    for _, command, _ in cli.commands():
        monkeypatch.setattr(command, "run", begin)


def complaint(option: Option, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    found = status(option.with_value(text))
    said = capsys.readouterr()
    what = f"gradreg {' '.join(option.with_value(text))[:120]}: status {found}"
    if possible(option, text):
        return "" if found == _BEGUN else f"{what}, {said.err}"
    if found != 2 or said.out or "Traceback" in said.err:
        return f"{what}, {said.out}{said.err}"
    words = " ".join(said.err.replace("│", " ").split())
    return "" if words and len(words) < 900 else f"{what}, {words}"


def test_there_are_many() -> None:
    assert len(OPTIONS) > 30
    assert {option.command for option in OPTIONS} >= {"demo", "evaluate", "diagnose", "inspect", "curvature", "data"}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.command}-{option.argument.name}")
def test_wrong_numbers_are_refused(option: Option, beginning: None, capsys: pytest.CaptureFixture[str]) -> None:
    found = [wrong for text in WRONG if (wrong := complaint(option, text, capsys))]
    assert not found, "\n".join(["", *found])


# The tables of a recipe that have numbers in them.
TABLES: dict[str, type] = {"": Config, "optimizer.": SGD, "probe.": Probe, "objective.": Gradient}
SETTINGS = [
    f"{table}{name}"
    for table, cls in TABLES.items()
    for name, hint in get_type_hints(cls, include_extras=True).items()
    if kinds(hint) & {int, float}
]


@pytest.mark.parametrize("name", SETTINGS)
def test_wrong_settings_are_refused_before_training(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begin(config: Config, *_: Any, **__: Any) -> None:
        raise SystemExit(_BEGUN)

    monkeypatch.setattr("gradreg.cli.train.train", begin)
    for text in ("nan", "-inf", "-1", "1e39", "1e-300", "text", "true", "[]", "{}"):
        found = status(["train", "mnist5k-l2", "--set", f"{name}={text}"])
        said = capsys.readouterr().err
        assert (found, "Traceback" in said) == (2, False), f"{name}={text}: {said}"
        assert name.rpartition(".")[2] in said
