"""A measurement of attacks in several sittings, and on networks of run directories."""

import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from attack_peers import TINY, dark, fake_foolbox, first_pixel, outcome, setting, shorten
from bench import attacks_command
from bench.attacks import Group
from bench.attacks_command import show
from bench.options import AttackOptions
from bench.parts import joined, measure_group
from bench.peers import Outcome
from gradreg.cli import main
from gradreg.errors import ConfigError
from gradreg.ledger import Ledger


@pytest.fixture
def plane() -> nn.Module:
    return first_pixel()


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def test_parts_are_joined() -> None:
    """Seconds add up, counts are means over images, and the reasons of those that gave up are kept once."""
    first, second = outcome([1.0, 2.0, 3.0], 10, 1.0), replace(outcome([4.0], 30, 2.0), most=None, note="failed: why")
    whole = joined([first, second, second])
    assert whole.distance.tolist() == [1, 2, 3, 4, 4]
    assert (whole.forwards, whole.cpu, whole.wall, whole.most, whole.note) == (18, 5, 10, None, "failed: why")
    assert joined([first, outcome([1.0], 30, 2.0)]).most == 30


@pytest.mark.usefixtures("_short")
def test_an_interrupted_measurement_goes_on(plane: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has ended is not run again, and nothing is lost but the part that was running."""
    monkeypatch.setitem(sys.modules, "foolbox", fake_foolbox())
    x, y = dark(5)
    x = x + torch.arange(5).view(-1, 1, 1, 1) / 100
    once = Group("plane", "l2", 0.2)
    kept = partial(measure_group, chunk=2, work=tmp_path / "work")
    list(measure_group(once, setting(plane, "foolbox"), x, y, chunk=2))
    running = kept(Group("plane", "l2", 0.2), setting(plane, "foolbox"), x, y)
    seen = [name for _, name in zip(range(15), running, strict=False)]
    running.close()
    assert seen[-1].startswith("plane, l2, part 2 of 3")
    rest = Group("plane", "l2", 0.2)
    later = list(kept(rest, setting(plane, "foolbox"), x, y))
    assert later[0] == seen[-1]
    assert len(seen) - 1 + len(later) == 3 * (len(once.minimal) + len(once.fixed))
    for ours, whole in ((rest.minimal, once.minimal), (rest.fixed, once.fixed)):
        assert list(ours) == list(whole)
        for name, run in ours.items():
            expected = whole[name]
            assert isinstance(run, Outcome)
            assert isinstance(expected, Outcome)
            assert torch.equal(run.distance, expected.distance)
            assert (run.propagations, run.most, run.note) == (expected.propagations, expected.most, expected.note)
    # A peer that is gone by then has its part in the folder.
    monkeypatch.setitem(sys.modules, "foolbox", None)
    again = Group("plane", "l2", 0.2)
    assert not list(kept(again, setting(plane, "foolbox"), x, y))
    assert isinstance(again.minimal["foolbox DDN 4"], Outcome)
    with pytest.raises(ConfigError, match="was begun with other images"):
        list(kept(Group("plane", "l2", 0.2), setting(plane, "foolbox"), x[:4], y[:4]))


@pytest.mark.usefixtures("_short")
def test_two_runs_are_measured_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks from run directories; at a radius that the data set's name stands for."""
    short = ("epochs=1", "held_out=3000", "batch_size=50", "probe.images=10", "probe.steps=1")
    options_of_training = [part for one in short for part in ("--set", one)]
    with pytest.raises(SystemExit, match="0"):
        main(["train", "mnist5k-l2", "--run", str(tmp_path / "plain"), *options_of_training])
    shutil.copytree(tmp_path / "plain", tmp_path / "penalty")
    monkeypatch.setattr(attacks_command, "OTHERS", 5)
    monkeypatch.setitem(attacks_command.RADII, "mnist5k", {"l2": 0.75})
    options = AttackOptions(
        images=2,
        threats="l2",
        peers="",
        undefended=tmp_path / "plain",
        regularised=tmp_path / "penalty",
        chunk=1,
        lengths=TINY,
        work=tmp_path / "work",
    )
    shown = Console(file=StringIO(), width=160)
    first = show(options, shown)
    assert {row.eps for row in first.radius_rows} == {0.75}
    folders = sorted(path.name for path in (tmp_path / "work").iterdir())
    assert folders == ["regularised-l2", "undefended-l2"]
    monkeypatch.setattr(Ledger, "save", None)  # nothing is left to run
    again = show(replace(options, json=tmp_path / "found.json"), shown)
    assert repr(again) == repr(first)  # nan is not equal to itself
    assert json.loads((tmp_path / "found.json").read_text())["options"]["runs"] == [
        str(tmp_path / name) for name in ("plain", "penalty")
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"undefended": Path("here")}, "the other run with --regularised RUN"),
        ({"data": "cifar10"}, "data must be mnist5k unless two runs are given"),
        ({"chunk": 0}, "chunk must be at least 1; got 0"),
    ],
)
def test_mistakes_about_networks(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AttackOptions(**given)  # type: ignore[arg-type]
