"""Options that may be left out, as the command line reads them and its help shows them."""

import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from commands import status
from gradreg.cli.diagnose import Diagnose
from gradreg.cli.parsing import parse
from gradreg.errors import ConfigError


def typed(*arguments: str) -> Diagnose:
    return parse(Diagnose, "gradreg diagnose", ["model", *arguments])


def test_a_value_or_none() -> None:
    assert typed() == typed("--eps", "none", "--size", "none", "--output", "none", "--data", "none")
    found = typed("--eps", "8/255", "--size", "160", "-o", "flags.json", "--data", "cifar10")
    assert found.options.eps == 8 / 255
    assert (found.named.size, found.output, found.named.data) == (160, Path("flags.json"), "cifar10")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--eps", "8/0"], "expected a number such as 0.5 or 8/255; got '8/0'"),
        (["--eps", "٨/٢٥٥"], "expected a number such as 0.5 or 8/255"),
        (["--size", "1.5"], "expected a whole number; got '1.5'"),
        (["--size", "٣"], "expected a whole number; got"),
    ],
)
def test_what_is_no_such_value(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        typed(*arguments)
    assert said in str(error.value)


def test_help_shows_the_value_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        typed("--help")
    said = capsys.readouterr().out
    assert "--eps FLOAT" in said
    assert "None" not in said


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("evaluate cifar10-l2 --attack quick", "evaluate takes no '--attack' (did you mean '--attacks'?): see gradreg"),
        ("evaluate cifar10-l2 --batchsize=3", "takes no '--batchsize' (did you mean '--batch-size'?)"),
        ("evaluate cifar10-l2 another", "gradreg evaluate takes no 'another': see gradreg evaluate --help."),
        ("data resize from to --size 64 --sise 3", "takes no '--sise' (did you mean '--size'?)"),
        ("evaluate --thraet linf cifar10-l2", "evaluate takes no '--thraet' (did you mean '--threat'?)"),
        ("evaluate", "MODEL must be given. See gradreg evaluate --help."),
        ("evaluate --model cifar10-l2", "evaluate takes no '--model'"),
        ("evaluate cifar10-l2 --help=3", "evaluate takes no '--help=3': see gradreg"),
        ("evaluate cifar10-l2 --out=", "--out: expected a path; got ''. See gradreg"),
        (
            "evaluate cifar10-l2 --out=~nobody.here/x",
            "expected a path; got '~nobody.here/x', and there is no such home.",
        ),
        ("evaluate cifar10-l2 --alpha 1_0", "--alpha: expected a number such as 0.5 or 8/255; got '1_0'."),
        ("ship", "RUN, --name STR and --evaluation PATH must be given. See gradreg ship --help."),
        ("data resize from", "DESTINATION and --size INT must be given. See gradreg data --help."),
        ("train mnist5k-l2 --run", "Missing value for argument '--run-dir/--run'."),
        ("train mnist5k-l2 --ruin x", "train takes no '--ruin' (did you mean '--run'?)"),
        ("evaluate cifar10-l2 --no-diagnosis --batch-size", "Missing value for argument '--batch-size'."),
        ("evaluate cifar10-l2 --batch-size 1.5", "--batch-size: expected a whole number; got '1.5'. See gradreg"),
        ("demo --images ٣", "--images: expected a whole number; got"),
        ("completion ksh", "Expected one of ('bash', 'zsh', 'fish'). See gradreg completion --help."),
        ("data", "Expected one of {show, resize}. See gradreg data --help."),
        ("evaluat cifar10-l2", "There is no command 'evaluat' (did you mean 'evaluate'?); gradreg has demo, models,"),
        ("--nonsense", "There is no command '--nonsense'; gradreg has"),
    ],
)
def test_words_that_are_no_command_are_answered_in_one_line(
    typed: str, said: str, encoding: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding))  # tyro draws its frames by it
    assert status(typed.split()) == 2
    found = capsys.readouterr().err
    assert said in found
    assert found.count("\n") == 1
