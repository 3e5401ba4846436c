"""The measurements of bounds and certificates, on linear models whose distances are known."""

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from time import sleep
from types import ModuleType
from typing import NoReturn

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

from bench import certify, certify_command, networks
from bench.__main__ import main
from bench.certify import Case, Cost, Noise, SmoothingRow, bound_rows, bounds_cost, compare_bounds, compare_smoothing
from bench.clever import compare_clever
from bench.digits import fresh_model
from bench.options import CertifyOptions
from gradreg.bounds import Regularity, bounds, estimate_regularity
from gradreg.data import Images, load
from gradreg.errors import ConfigError, StorageError
from gradreg.ledger import Ledger
from gradreg.runs.directory import RunDirectory


def silent(name: str) -> "Told":
    return Told()


class Told:
    """Progress must never be told of more than there is."""

    def __call__(self, done: int, total: int) -> None:
        assert 0 <= done <= total


class Linear(nn.Linear):
    """A linear classifier of images with given weights."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight.shape[1], len(weight))
        with torch.no_grad():
            self.weight.copy_(weight)
            self.bias.copy_(bias)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


def case(model: nn.Module) -> Case:
    return Case("plane", model, 0, silent, Ledger(None, {}))


@pytest.fixture
def plane() -> Linear:
    """Two classes on either side of a hyperplane through the grey image."""
    normal = torch.randn(64) / 2
    return Linear(torch.stack([normal, -normal]), torch.stack([-normal.sum(), normal.sum()]) / 2)


def at_distances(plane: Linear, distances: Tensor) -> tuple[Tensor, Tensor]:
    """Images that far from the hyperplane, on both sides in turn, moved along it at random."""
    normal = plane.weight[0].detach() / plane.weight[0].detach().norm()
    along = 0.1 * torch.rand(len(distances), 64)
    along = along - (along @ normal)[:, None] * normal
    labels = torch.arange(len(distances)) % 2
    x = 0.5 + along + (distances * (1 - 2 * labels))[:, None] * normal
    return x.view(-1, 1, 8, 8), labels


def test_rows_of_bounds_that_are_exact(plane: Linear) -> None:
    """On logits of a linear model ω = 0, so both bounds are the distance; unbroken and wrong images are told apart."""
    exact = torch.linspace(0.05, 0.5, 20)
    x, y = at_distances(plane, exact)
    normal = plane.weight.detach().diff(dim=0).norm()
    known = Regularity("l2", "given", normal, torch.tensor([0.5, 1.0]), torch.zeros(2), scores="logits")
    for row in bound_rows("plane", plane, (x, y), known, 1.0001 * exact):
        assert row.rate == 0
        assert row.worst_ratio == pytest.approx(1, abs=1e-3)
        assert row.tightness == pytest.approx(1, abs=1e-3)
        assert (row.n, row.unbroken, row.kind) == (20, 0, "heuristic")
        assert row.distance == pytest.approx(float(exact.mean()), rel=1e-3)
    wrong = exact / 2
    wrong[0], wrong[1] = 0, torch.inf
    for row in bound_rows("plane", plane, (x, y), known, wrong):
        assert (row.n, row.unbroken) == (19, 1)
        assert row.rate == pytest.approx(18 / 19)
        assert row.worst_ratio == pytest.approx(2, abs=1e-3)


def test_every_method_is_compared_with_the_attack(plane: Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack finds the known distances, and around a plane every estimate sees all there is."""
    monkeypatch.setattr(certify, "RADII", 8)
    monkeypatch.setattr(certify, "SUITE", "quick")
    exact = torch.linspace(0.1, 0.5, 10)
    calibration = at_distances(plane, 0.1 + 0.5 * torch.rand(640))
    rows = compare_bounds(case(plane), "l2", calibration, at_distances(plane, exact))
    methods = ("paper", "ascent", "local", "local")
    assert [(row.method, row.bound) for row in rows] == [(method, bound) for method in methods for bound in "ωL"]
    assert all(row.distance == pytest.approx(float(exact.mean()), rel=1e-3) for row in rows)
    found = {(row.method, row.bound): row for row in rows if row.scores == "probabilities"}
    # On logits a plane has no first-order error at all.
    assert rows[-2].scores == "logits"
    assert rows[-2].tightness == pytest.approx(1, rel=2e-3)
    assert all(row.rate == 0 for row in rows if row.method != "paper" and row.scores == "probabilities")
    # Between the radii ω is taken as at the next one, an eighth of the reach away.
    assert 0.5 < found["local", "ω"].tightness <= 1
    assert found["ascent", "ω"].tightness <= found["local", "ω"].tightness


def test_smoothing_certifies_what_the_known_radius_allows(plane: Linear) -> None:
    """The smoothed linear classifier's radius is the distance, here well below or well above the radii asked for."""
    x, y = at_distances(plane, torch.tensor([0.02, 0.7] * 5))
    rows = compare_smoothing(case(plane), x, y, Noise(0.25, (0.1, 0.3), 2000))
    assert [row.radii for row in rows] == [(0.1,), (0.3,), (0.0, 0.1, 0.3)]
    for row in rows:
        assert row.cohen_samples == 2100
        assert row.certified[-1] == row.cohen_certified[-1] == 0.5
        assert row.samples < 1000
        assert row.saving == pytest.approx(2100 / row.samples)
    assert rows[0].samples < rows[-1].samples


def test_the_gap_is_the_largest_difference_with_its_sign() -> None:
    row = SmoothingRow("plane", (0.0, 0.5), 10.0, 100.0, (0.9, 0.8), (0.88, 0.85), 50)
    assert row.gap == pytest.approx(0.05)
    assert row.saving == 10


def test_cost_of_bounds_relative_to_the_passes() -> None:
    """With a model that takes its time: four batches, and the checks of a few images first, against the same four."""
    calls = 0

    class Slow(Linear):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            sleep(0.03)  # long beside whatever else the machine does
            return super().forward(x)

    model = Slow(torch.randn(3, 64), torch.zeros(3))
    x, y = torch.rand(1024, 1, 8, 8), torch.arange(1024) % 3
    known = Regularity("l2", "given", torch.tensor(1.0), torch.tensor([1.0]), torch.zeros(1))
    bounds(model, x, y, known)
    assert 4 < calls <= 8
    expected = calls / 4
    cost = bounds_cost(model, x, y, known, rounds=3)
    assert cost.baseline > 0.12
    assert cost.ratio == pytest.approx(expected, rel=0.2)
    assert Cost(3.0, 2.0).ratio == 1.5


def test_clever_of_a_linear_model_without_art(plane: Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "art", None)
    monkeypatch.setitem(sys.modules, "art.metrics", None)
    x, y = at_distances(plane, torch.tensor([0.4]))
    row = compare_clever(plane, x, y, samples=8, radius=2.0, rounds=1)
    assert row.score == pytest.approx(0.4, rel=1e-4)
    assert row.art_seconds is row.art_score is None
    assert row.points == 80


def test_clever_asks_art_for_as_many_points(plane: Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    def clever_u(classifier: object, image: object, *, nb_batches: int, batch_size: int, **options: object) -> float:
        assert (batch_size, options["pool_factor"], options["norm"], nb_batches) == (8, 10, 2, 50)
        return float(np.random.rand())

    metrics, estimators = ModuleType("art.metrics"), ModuleType("art.estimators.classification")
    metrics.clever_u = clever_u  # type: ignore[attr-defined]
    estimators.PyTorchClassifier = lambda model, **options: model  # type: ignore[attr-defined]
    for name, module in {"art": ModuleType("art"), "art.estimators": ModuleType("art.estimators")}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "art.metrics", metrics)
    monkeypatch.setitem(sys.modules, "art.estimators.classification", estimators)
    before = np.random.get_state(legacy=False)
    row = compare_clever(plane, *at_distances(plane, torch.tensor([0.4])), samples=8, radius=2.0, rounds=1)
    assert row.art_seconds is not None
    assert row.art_score == pytest.approx(np.random.RandomState(0).rand())
    np.testing.assert_equal(np.random.get_state(legacy=False), before)


def nearest_mean(images: Images, *settings: float) -> nn.Module:
    """A linear classifier without training: which class has the nearest mean image."""
    x, y = images.floats().flatten(1), images.labels
    means = torch.stack([x[y == label].mean(0) for label in range(10)])
    return Linear(means, -means.square().sum(1) / 2)


@pytest.fixture
def small_command(monkeypatch: pytest.MonkeyPatch) -> CertifyOptions:
    """The command on a model that needs no training, with as little of everything as there can be."""
    monkeypatch.setitem(sys.modules, "art", None)
    monkeypatch.setitem(sys.modules, "art.metrics", None)
    monkeypatch.setattr(networks, "trained", nearest_mean)
    monkeypatch.setattr(certify_command, "THREATS", ("l2",))
    monkeypatch.setattr(certify_command, "RADII", (0.1, 0.2))
    monkeypatch.setattr(certify, "ESTIMATES", certify.ESTIMATES[2:])
    monkeypatch.setattr(certify, "RADII", 3)
    monkeypatch.setattr(certify, "SUITE", "quick")
    return CertifyOptions(images=8, smoothing_images=2, cohen=1000, clever_samples=2, rounds=1)


def test_the_whole_command(tmp_path: Path, small_command: CertifyOptions) -> None:
    shown = Console(file=StringIO(), width=120)
    report = certify_command.show(replace(small_command, json=tmp_path / "found.json"), shown)
    # The same model under both names, so the same figures: nothing depends on the order of the measurements.
    for rows in (report.bounds, report.smoothing):
        half = len(rows) // 2
        assert [row.network for row in rows] == ["undefended"] * half + ["regularised"] * half
        assert [vars(row) | {"network": ""} for row in rows[:half]] == [
            vars(row) | {"network": ""} for row in rows[half:]
        ]
    assert [target.met for target in report.targets()][-1] is None
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["bounds"][0]["rate"] == report.bounds[0].rate
    assert written["options"]["images"] == 8
    assert len(written["targets"]) == 5
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "ART is not installed" in text
    assert "local ω" in text
    assert list(tmp_path.iterdir()) == [tmp_path / "found.json"]


def saved_run(folder: Path, seed: int) -> Path:
    """A run directory of an untrained network."""
    directory = RunDirectory(folder)
    directory.start({"model": {"name": "small", "classes": 10, "mean": 0.13, "std": 0.31}})
    directory.save_weights("best", fresh_model(seed).state_dict(), {"epoch": 1})
    return folder


def test_what_is_finished_is_not_measured_again(
    tmp_path: Path, small_command: CertifyOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted and repeated, the command measures what is missing and nothing else; the figures are the same."""
    runs = saved_run(tmp_path / "plain", 1), saved_run(tmp_path / "robust", 2)
    work, quiet = tmp_path / "work", Console(file=StringIO())
    options = replace(small_command, undefended=runs[0], regularised=runs[1], work=work)
    digits = load("mnist5k").train
    assert isinstance(digits, Images)
    # As quick as the digits' networks are slow.
    first = dict(zip(runs, (0, 1), strict=True))
    monkeypatch.setattr(networks, "load", lambda run: nearest_mean(digits.subset(slice(first[run], 500))))

    def out_of_time(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(certify_command, "compare_smoothing", out_of_time)
        with pytest.raises(KeyboardInterrupt):
            certify_command.show(options, quiet)
    estimated: list[str] = []

    def counted(model: nn.Module, data: object, threat: str, **given: object) -> Regularity:
        estimated.append(str(given["scores"]) if "scores" in given else "cost")
        return estimate_regularity(model, data, threat, **given)  # type: ignore[arg-type]

    for module in (certify, certify_command):
        monkeypatch.setattr(module, "estimate_regularity", counted)
    report = certify_command.show(options, quiet)
    # The first network's bounds were kept.
    assert estimated == ["probabilities", "logits", "cost"]
    estimated.clear()
    (work / "regularised-l2-local-logits.done.safetensors").unlink()
    assert certify_command.show(options, quiet) == report
    assert estimated == ["logits"]

    with pytest.raises(ConfigError, match="was begun with other images;"):
        certify_command.show(replace(options, images=7), quiet)
    first[runs[1]] = 2  # as if it was trained on
    with pytest.raises(ConfigError, match="was begun with other weights of the regularised network;"):
        certify_command.show(options, quiet)


def test_networks_trained_by_the_command_are_kept(
    tmp_path: Path, small_command: CertifyOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(images: Images, eps: float, epochs: int, seed: int) -> nn.Module:
        trainings.append(eps)
        return nearest_mean(images)

    trainings: list[float] = []
    monkeypatch.setattr(networks, "trained", train)
    monkeypatch.setattr(networks, "fresh_model", lambda seed: Linear(torch.zeros(10, 784), torch.zeros(10)))
    quiet = Console(file=StringIO())
    reports = [certify_command.show(replace(small_command, work=tmp_path / "work"), quiet) for _ in range(2)]
    assert reports[0] == reports[1]
    assert trainings == [0.0, 2.0]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, small_command: CertifyOptions) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(ConfigError, match=r"must be a new folder, .*; it holds thesis\.txt\.$"):
        certify_command.show(replace(small_command, work=tmp_path), Console(file=StringIO()))
    with pytest.raises(StorageError, match=r"thesis.txt could not be written .* choose another place"):
        certify_command.show(replace(small_command, work=tmp_path / "thesis.txt"), Console(file=StringIO()))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["all of it"]


def test_runs_and_data_must_go_together(tmp_path: Path, small_command: CertifyOptions) -> None:
    quiet = Console(file=StringIO())
    run = saved_run(tmp_path / "run", 1)
    for given, said in (({"undefended": run}, "--regularised RUN"), ({"data": "cifar10"}, "data must be mnist5k")):
        with pytest.raises(ConfigError, match=said):
            replace(small_command, **given)
    for split in ("train", "val"):
        for label in range(10):
            folder = tmp_path / "colour" / split / str(label)
            folder.mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / "0.png")
    wrong = replace(
        small_command,
        images=1,
        smoothing_images=1,
        data=f"folder:{tmp_path / 'colour'}",
        undefended=run,
        regularised=run,
    )
    with pytest.raises(ConfigError, match="cannot classify images of 3×224×224"):
        certify_command.show(wrong, quiet)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--images", "0"], "images must be at least 1; got 0"),
        (["--smoothing-images", "5000"], "smoothing_images must be at most 1000"),
        (["--epochs", "0"], "epochs must be at least 1; got 0"),
        (["--json", "nowhere/found.json"], "no folder nowhere"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before ten minutes of work, not after."""
    with pytest.raises(SystemExit) as stop:
        main(["certify", *arguments])
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
