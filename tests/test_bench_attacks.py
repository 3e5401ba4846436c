"""The measurement of attacks: counting, ratios and targets, with peers that are made up here."""

import json
import math
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from attack_peers import TINY, dark, fake_foolbox, first_pixel, linear, moved, outcome, setting, shorten
from bench import attacks_command, networks, peers
from bench.__main__ import main
from bench.attacks import Equal, Group, RadiusRow, Row, quantile, ratios
from bench.attacks_command import chosen, show
from bench.attacks_report import Report
from bench.options import PEERS, AttackOptions
from bench.parts import measure_group
from bench.peers import Outcome, run_peer
from gradreg.data import Images
from gradreg.errors import ModelError


@pytest.fixture
def plane() -> nn.Module:
    return first_pixel()


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def test_a_peer_is_counted_and_its_images_are_measured(plane: nn.Module) -> None:
    x, y = dark(4)
    before, state = np.random.get_state(legacy=False), torch.get_rng_state()
    outcome = run_peer(moved(0.3), plane, x, y, threat="l2", seed=0)
    np.testing.assert_equal(np.random.get_state(legacy=False), before)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(outcome.distance, torch.full((4,), 0.3))
    assert (outcome.forwards, outcome.backwards, outcome.propagations, outcome.most) == (3, 2, 5, None)
    assert outcome.wall > 0


@pytest.mark.parametrize(
    ("by", "within", "distance"),
    [(0, np.inf, np.inf), (0.2, np.inf, np.inf), (0.3, 0.29, np.inf), (0.3, 0.3, 0.3), (5, np.inf, 0.75)],
)
def test_which_images_of_a_peer_count(plane: nn.Module, by: float, within: float, distance: float) -> None:
    """Misclassified ones, in the box and the ball."""
    found = run_peer(moved(by), plane, *dark(1), threat="linf", seed=0, within=within).distance
    assert float(found) == pytest.approx(distance)


def test_quantiles_and_ratios_with_failures() -> None:
    best = torch.tensor([1.0, 2.0, 4.0, torch.inf])
    apart = ratios(torch.tensor([1.0, 3.0, torch.inf, torch.inf]), best)
    assert apart.tolist() == [1.0, 1.5, math.inf]
    assert quantile(apart, 0.5) == 1.5
    assert quantile(apart, 0.9) == math.inf
    assert quantile(torch.arange(1.0, 11.0), 0.9) == 9
    assert math.isnan(quantile(torch.empty(0), 0.5))


def test_a_group_compares_with_the_best_of_all_runs() -> None:
    group = Group("net", "l2", 1.5)
    group.minimal = {
        "C&W 9×1000": outcome([1.0, 2.0, 3.0], 10, 1.0),
        "foolbox C&W 9×1000": outcome([2.0, 1.0, math.inf], 40, 8.0),
        "art DeepFool": "not installed",
    }
    group.fixed = {"standard": outcome([0.5, math.inf, math.inf], 7, 1.0), "foolbox PGD": "failed: no start"}
    assert group.best.tolist() == [0.5, 1.0, 3.0]
    ours, theirs, absent = group.rows()
    assert (ours.median, ours.p90, ours.success) == (2, 2, 1)
    assert ours.mean == pytest.approx(5 / 3)
    assert (theirs.median, theirs.p90, theirs.mean) == (4, math.inf, 2.5)
    assert theirs.success == pytest.approx(2 / 3)
    assert absent.median is absent.cpu is None
    assert absent.note == "not installed"
    held, failed = group.radius_rows()
    assert held.robust == pytest.approx(2 / 3)
    assert (held.propagations, failed.propagations, failed.note) == (7, None, "failed: no start")
    assert group.equal() == [Equal("net", "C&W 9×1000", 0.5, 0.125, 0.125, 0.25)]


def test_targets_are_met_and_missed() -> None:
    row = Row("net", "l2", "standard", 1.004, 1.05, 1.01, 1.0, 500, 400, 900, 2.0, 2.0)
    slow = replace(row, attack="foolbox C&W 9×1000", cpu=6.0)
    at = RadiusRow("net", "l2", 1.0, "standard", 0.5, 100, 100, 1.0, 1.0)
    reference = replace(at, attack="autoattack standard", robust=0.4, forwards=1000)
    rows, equal = (
        [row, slow, replace(slow, attack="foolbox Boundary 5000", cpu=5.0)],
        Equal("net", "C&W", 0.9, 0.5, 1, 1),
    )
    found = [target.met for target in Report(rows, [at, reference], [equal], 100).targets()]
    assert found == [True, False, True, True, False, True, True, False]
    assert [target.met for target in Report([row], [at], [], 100).targets()] == [True, False, True, None, None, None]
    few = Report([row], [at], [], 1).targets()
    assert [target.met for target in few] == [None] * 6, "one image shows nothing"
    assert "n = 1; judged from 50 on" in few[0].found


@pytest.mark.usefixtures("_short")
def test_a_foolbox_that_is_made_up(plane: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foolbox", fake_foolbox())
    assert peers.version("foolbox") == "0"
    group = Group("plane", "l2", 0.2)
    names = list(measure_group(group, setting(plane, "foolbox"), *dark(2)))
    assert names[0] == "plane, l2, part 1 of 1: quick"
    theirs = group.minimal["foolbox C&W 2×4"]
    assert isinstance(theirs, Outcome)
    assert theirs.propagations == 5
    torch.testing.assert_close(theirs.distance, torch.full((2,), 0.3))
    failed = group.minimal["foolbox Boundary 10"]
    assert isinstance(failed, Outcome)
    assert failed.note == "failed: init_attack failed for 1 of 2 inputs"
    assert failed.distance.tolist() == [math.inf, math.inf]
    rows = {row.attack: row for row in group.rows()}
    # The smallest radius above 0.1 is 0.2 · 2^(−3/4) = 0.119, and 0.3 + 0.119 over the true distance of 0.25 is 1.68.
    assert rows["foolbox PGD, 13 radii"].median == pytest.approx(1.676, abs=0.01)
    assert rows["standard"].median == pytest.approx(1, abs=1e-3)
    assert rows["foolbox DDN 4"].median == pytest.approx(1.2, abs=1e-3)
    assert [equal.attack for equal in group.equal()] == ["C&W 2×4"]
    # Nothing is within 0.2, and what foolbox returned for it lies outside.
    assert [row.robust for row in group.radius_rows()] == [1, 1, 1]


def test_our_own_failures_end_the_measurement(plane: nn.Module) -> None:
    with pytest.raises(ModelError, match="train mode"):
        list(measure_group(Group("plane", "l2", 0.2), setting(plane.train()), *dark(2)))


def test_measured_images_are_the_last_that_all_classify(plane: nn.Module) -> None:
    x, y = dark(8)
    y[7] = 1  # which is wrong
    x = x + torch.arange(8).view(-1, 1, 1, 1) / 100
    measured, others = chosen([plane, plane], x, y, 3)
    assert torch.equal(measured[0], x[4:7])
    assert torch.equal(others[0], x[:4])


def nearest_mean(images: Images, *settings: float) -> nn.Module:
    """A linear classifier without training: which class has the nearest mean image."""
    x, y = images.floats().flatten(1), images.labels
    means = torch.stack([x[y == label].mean(0) for label in range(10)])
    return linear(means, -means.square().sum(1) / 2)


@pytest.mark.usefixtures("_short")
def test_the_whole_command_without_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, _ in PEERS.values():
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(networks, "trained", nearest_mean)
    monkeypatch.setattr(attacks_command, "OTHERS", 5)
    shown = Console(file=StringIO(), width=160)
    report = show(AttackOptions(images=2, threats="l2", lengths=TINY, json=tmp_path / "found.json"), shown)
    assert [target.met for target in report.targets()][3:6] == [None, None, None]
    assert all(row.median == pytest.approx(1, abs=0.01) for row in report.rows if row.attack == "standard")
    assert "not installed" in shown.file.getvalue()  # type: ignore[attr-defined]
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["peers"] == {"foolbox": None, "art": None, "autoattack": None}
    assert written["rows"][0]["median"] == report.rows[0].median
    assert {row["note"] for row in written["radius_rows"]} >= {"not installed: pip install pyautoattack"}
    assert list(tmp_path.iterdir()) == [tmp_path / "found.json"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--images", "0"], "images must be at least 1; got 0"),
        (["--threats", "l2,l3"], "threats must be among l2, linf; got l3"),
        (["--threats", ""], "threats must name at least one"),
        (["--peers", "toolbox"], "peers must be among foolbox, art, autoattack; got toolbox"),
        (["--json", "nowhere/found.json"], "no folder nowhere"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the work, not after."""
    with pytest.raises(SystemExit) as stop:
        main(["attacks", *arguments])
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
