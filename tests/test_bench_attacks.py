"""The measurement of attacks: counting, ratios and targets, with peers that are made up here."""

import json
import math
import sys
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from gradreg.attacks import boundary, carlini_wagner, suite
from gradreg.bench import attacks, attacks_command, peers
from gradreg.bench.attacks import Equal, Group, RadiusRow, Row, measure_group, quantile, ratios
from gradreg.bench.attacks_command import Options, bench_attacks, chosen
from gradreg.bench.attacks_report import Report
from gradreg.bench.peers import Lengths, Outcome, PeerAttack, run_peer
from gradreg.cli import main
from gradreg.data import Images
from gradreg.errors import ModelError

TINY = Lengths(rounds=2, cw=4, boundary=10, steps=4)


def linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """A linear classifier of images with given weights."""
    layer = nn.Linear(weight.shape[1], len(weight))
    layer.load_state_dict({"weight": weight, "bias": bias})
    return nn.Sequential(nn.Flatten(), layer).eval().requires_grad_(False)


@pytest.fixture
def plane() -> nn.Module:
    """Class 1 where the first pixel is above a half."""
    weight = torch.zeros(2, 16)
    weight[1, 0] = 2.0
    return linear(weight, torch.tensor([1.0, 0.0]))


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every suite is the quick one, and our attacks are as short as they can be."""
    for suites, names in ((suite.MINIMAL, ("standard", "paper")), (suite.FIXED, ("standard",))):
        for name in names:
            monkeypatch.setitem(suites, name, suites["quick"])
    monkeypatch.setattr(attacks, "carlini_wagner", partial(carlini_wagner, steps=4, rounds=2))
    monkeypatch.setattr(attacks, "boundary", partial(boundary, steps=10))


def dark(count: int) -> tuple[Tensor, Tensor]:
    """Images of class 0 at l2 distance 0.25 from class 1."""
    return torch.full((count, 1, 4, 4), 0.25), torch.zeros(count, dtype=torch.int64)


def moved(by: float) -> PeerAttack:
    """Raises the first pixel, after three forwards and two backwards; draws from the global streams."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            model(x)
        for _ in range(2):
            model(x.clone().requires_grad_()).sum().backward()
        points = x.clone() + 0 * torch.rand(()) * np.random.rand()
        points[:, 0, 0, 0] += by
        return points

    return run


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


def outcome(distance: list[float], forwards: float, cpu: float) -> Outcome:
    return Outcome(torch.tensor(distance), forwards, 0.0, int(forwards), cpu, 2 * cpu)


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
    found = [target.met for target in Report(rows, [at, reference], [equal]).targets()]
    assert found == [True, False, True, True, False, True, True, False]
    assert [target.met for target in Report([row], [at], []).targets()] == [True, False, True, None, None, None]


def fake_foolbox() -> ModuleType:
    """An attack by that interface: whatever it is called, it moves the first pixel to the other side."""

    def made(**options: object) -> object:
        def attack(model: nn.Module, x: Tensor, y: Tensor, epsilons: float | list[float] | None) -> object:
            points = moved(0.3)(model, x, y)
            if isinstance(epsilons, list):
                # It succeeds at the larger radii only, further away than it needs to.
                far = [moved(0.3 + eps)(model, x, y) for eps in epsilons]
                return far, far, torch.tensor([[eps > 0.1] * len(x) for eps in epsilons])
            return points, points, torch.ones(len(x), dtype=torch.bool)

        return attack

    def failing(**options: object) -> object:
        raise ValueError("init_attack failed for 1 of 2 inputs")

    names = ("L2CarliniWagnerAttack", "DDNAttack", "L2PGD", "LinfPGD", "LInfFMNAttack")
    module = ModuleType("foolbox")
    module.attacks = SimpleNamespace(**dict.fromkeys(names, made), BoundaryAttack=failing)  # type: ignore[attr-defined]
    module.PyTorchModel = lambda model, bounds, device: model  # type: ignore[attr-defined]
    module.__version__ = "0"  # type: ignore[attr-defined]
    return module


@pytest.mark.usefixtures("_short")
def test_a_foolbox_that_is_made_up(plane: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foolbox", fake_foolbox())
    assert peers.version("foolbox") == "0"
    group = Group("plane", "l2", 0.2)
    names = list(measure_group(group, plane, *dark(2), peers=("foolbox",), seed=0, sizes=TINY))
    assert names[0] == "plane, l2: quick"
    theirs = group.minimal["foolbox C&W 2×4"]
    assert isinstance(theirs, Outcome)
    assert theirs.propagations == 5
    torch.testing.assert_close(theirs.distance, torch.full((2,), 0.3))
    assert group.minimal["foolbox Boundary 10"] == "failed: init_attack failed for 1 of 2 inputs"
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
        list(measure_group(Group("plane", "l2", 0.2), plane.train(), *dark(2), peers=(), seed=0, sizes=TINY))


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
    for module, _ in peers.PEERS.values():
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(attacks_command, "trained", nearest_mean)
    monkeypatch.setattr(attacks_command, "OTHERS", 5)
    shown = Console(file=StringIO(), width=160)
    report = bench_attacks(Options(images=2, threats=("l2",), lengths=TINY), None, tmp_path / "found.json", shown)
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
        (["--images", "0"], "images is 0"),
        (["--threats", "l2,l3"], "no threat l3"),
        (["--threats", ""], "no threat to measure"),
        (["--peers", "toolbox"], "no peer toolbox"),
        (["--json", "nowhere/found.json"], "no folder nowhere"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the work, not after."""
    with pytest.raises(SystemExit) as stop:
        main(["bench", "attacks", *arguments])
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
