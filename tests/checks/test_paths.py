"""Paths that no file system has are refused before Python raises, where it only asks whether a file is there."""

import os
from pathlib import Path

import pytest

from gradreg.checks.scalars import check_path
from gradreg.cli.parsing import parse
from gradreg.cli.report import Report
from gradreg.data import load
from gradreg.errors import DataError, GradregError


@pytest.mark.parametrize("path", ["x" * 256, "é" * 128, "a/" * 2048, "folder/" + "x" * 256, "\ud800", "a\0b", ""])
def test_what_no_file_system_has(path: str) -> None:
    with pytest.raises(GradregError, match=r"^place must be a path"):
        check_path("place", path)


@pytest.mark.parametrize("path", ["x" * 255, "é" * 127, "a/" * 2000 + "b", os.fsdecode(b"\xff"), "two\nlines"])
def test_what_one_may_have(path: str) -> None:
    assert check_path("place", path) == Path(path)


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_a_data_set_at_such_a_path(kind: str) -> None:
    with pytest.raises(DataError, match="The data set must be a path of less than"):
        load(f"{kind}:{'x' * 300}")


def test_a_home_that_the_shell_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As bash does of --output=~/x: the file would be in a folder named ~."""
    monkeypatch.setenv("HOME", "/somebody")
    found = parse(Report, "gradreg report", ["one", "--output=~/x.html"])
    assert found.output == Path("/somebody/x.html")
    assert found.evaluations == (Path("one"),)
