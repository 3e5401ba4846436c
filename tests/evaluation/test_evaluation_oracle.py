"""On a linear model every column of the table is known."""

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor
from torch.testing import assert_close

import gradreg.diagnosis
from evaluation_toys import CLASSES, exact_distance, exact_margin, linear, part, quick, toy
from gradreg.data import DataSet, Images
from gradreg.errors import ConfigError, DataError, ModelError
from gradreg.evaluation import Evaluation, load
from gradreg.evaluation.inputs import select
from gradreg.evaluation.stages.bounds import _block_size


def test_the_selection_grows_with_the_number_of_images() -> None:
    few, many, all_of_them = (select(1000, images, seed=4) for images in (10, 100, 5000))
    assert torch.equal(few, many[:10])
    assert torch.equal(many, all_of_them[:100])
    assert sorted(all_of_them.tolist()) == list(range(1000))
    assert not torch.equal(few, select(1000, 10, seed=5))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluation, list[dict[str, str]]]:
    folder = tmp_path_factory.mktemp("toy") / "evaluation"
    torch.set_num_threads(1)
    smoothing: dict[str, Any] = {"smoothing": (0.1,), "radii": (0.05, 0.1, 0.2), "samples": 1000}
    found = quick(
        folder,
        threat=("l2", "linf"),
        images=30,
        attacks=["fmn", "deepfool"],
        diagnosis=True,
        name="toy model",
        regularity="ascent",
        **smoothing,
    )
    with (folder / "images.csv").open(newline="") as file:
        return found, list(csv.DictReader(file))


def column(rows: list[dict[str, str]], name: str) -> Tensor:
    return torch.tensor([float(row[name]) for row in rows])


def images_of(rows: list[dict[str, str]]) -> tuple[Tensor, Tensor]:
    test = toy().test
    assert isinstance(test, Images)
    index = [int(row["index"]) for row in rows]
    return test.floats(index), test.labels[index]


def test_distances_and_margins_are_the_exact_ones(evaluated: tuple[Evaluation, list[dict[str, str]]]) -> None:
    found, rows = evaluated
    x, y = images_of(rows)
    assert len(rows) == 30
    assert len({row["index"] for row in rows}) == 30
    assert [int(row["label"]) for row in rows] == y.tolist()
    assert [int(row["prediction"]) for row in rows] == linear()(x).argmax(1).tolist()
    assert_close(column(rows, "margin"), exact_margin(x, y), rtol=0, atol=1e-6)
    for threat, dual in (("l2", 2.0), ("linf", 1.0)):
        exact = exact_distance(x, y, dual)
        assert 0 < int((exact == 0).sum()) < 10
        assert_close(column(rows, f"{threat}.distance"), exact, rtol=2e-3, atol=0)
        assert [row[f"{threat}.winner"] == "clean" for row in rows] == (exact == 0).tolist()
        assert bool((column(rows, f"{threat}.forwards") >= 1).all())
    assert found.clean == (6, 60)
    assert found.wrong.sum() == (exact == 0).sum()


def test_bounds_solve_their_equations(evaluated: tuple[Evaluation, list[dict[str, str]]]) -> None:
    """∇(p_r − p_c) = p_r(w_r − w̄) − p_c(w_c − w̄) with w̄ = Σ p_k w_k; the ω-bound by looking at 20,000 radii."""
    found, rows = evaluated
    x, y = images_of(rows)
    p, weight = linear()(x).detach().softmax(1), linear()[1].weight.detach()  # type: ignore[index]
    rival = p.scatter(1, y[:, None], -1).argmax(1)
    centre, place = p @ weight, torch.arange(len(x))
    gradient = p[place, rival, None] * (weight[rival] - centre) - p[place, y, None] * (weight[y] - centre)
    gap = (-exact_margin(x, y)).clamp(min=0)
    for threat, dual in (("l2", 2.0), ("linf", 1.0)):
        bounded = found.threats[threat].bounded
        assert bounded is not None
        assert bounded.calibration_images == 640
        norm = torch.linalg.vector_norm(gradient, dual, dim=1)
        assert_close(column(rows, f"{threat}.gradient_norm"), norm, rtol=1e-4, atol=0)
        assert_close(column(rows, f"{threat}.lipschitz_bound"), gap / bounded.lipschitz, rtol=1e-4, atol=1e-6)
        radii = torch.linspace(0, bounded.eps[-1], 20_001)[1:]
        omega = torch.tensor([bounded.omega_at(float(radius) * (1 - 1e-6)) for radius in radii])
        holds = (gap[:, None] - omega - radii * norm[:, None] >= 0).long().cumprod(1).sum(1)
        brute = torch.cat([torch.zeros(1), radii])[holds]
        assert_close(column(rows, f"{threat}.omega_bound"), brute, rtol=0, atol=2 * float(radii[0]))
        validity = found.threats[threat].omega_validity()
        assert validity is not None
        assert validity.rate < 0.1


def test_calibrated_bounds_are_of_the_other_half_and_come_back_from_the_file(tmp_path: Path) -> None:
    """On a linear model the search finds the distance, so the bound is tight; α = 0.2 needs 4 images in each half."""
    found = quick(tmp_path / "some", images=40, calibration_alpha=0.2, smoothing=None, diagnosis=True)
    record = found.threats["l2"]
    assert record.bounded is not None
    calibrated = record.bounded.calibrated
    assert calibrated is not None
    halves = [int((record.attacked.distance[half::2] > 0).sum()) for half in (0, 1)]
    assert (calibrated.alpha, calibrated.n) == (0.2, min(halves))
    assert calibrated.scale == pytest.approx(1, abs=0.03)
    assert bool((calibrated.bound[found.wrong] == 0).all())
    fared = record.calibrated_validity()
    assert fared is not None
    assert (fared.kind, fared.n) == ("calibrated", sum(halves))
    assert 0.97 < fared.tightness < 1.03
    again = load(tmp_path / "some")
    kept = again.threats["l2"].bounded
    assert kept is not None
    assert kept.calibrated is not None
    assert torch.equal(kept.calibrated.bound, calibrated.bound)
    with (tmp_path / "some" / "images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert_close(column(rows, "l2.calibrated_bound"), calibrated.bound)
    (flag,) = [flag for flag in record.flags if flag.code == "calibration-violated"]
    assert (flag.severity, flag.evidence["alpha"]) == ("info", 0.2)
    summary = json.loads((tmp_path / "some" / "evaluation.json").read_text())["summary"]["threats"]["l2"]
    assert summary["calibrated_bound"]["alpha"] == 0.2
    few = quick(images=12, smoothing=None)
    assert few.threats["l2"].bounded is not None
    assert few.threats["l2"].bounded.calibrated is None
    assert "needs at least 19 correctly classified" in few.threats["l2"].bounded.uncalibrated


def test_certificates_hold_and_everything_else_is_told(evaluated: tuple[Evaluation, list[dict[str, str]]]) -> None:
    """The smoothed linear classifier of two classes is the classifier itself, and of more nearly so."""
    found, rows = evaluated
    x, y = images_of(rows)
    radius = column(rows, "smoothing[0.1].radius")
    assert set(found.smoothing[0].radius.tolist()) <= {0.0, 0.05, 0.1, 0.2}
    assert bool((radius > 0).any())
    certified = found.certified(found.smoothing[0], 0.1)
    assert bool(certified.any())
    assert bool((exact_distance(x, y, 2.0)[certified] > 0.08).all())
    seen = found.smoothing[0].seen
    assert seen is not None
    assert_close(column(rows, "smoothing[0.1].frequency"), seen.frequency, check_dtype=False)
    # A certificate of 0.1 = σ takes a frequency of Φ(1) = 0.841.
    assert bool((seen.frequency[certified] > 0.84).all())
    assert found.subject.name == "toy model"
    assert found.subject.parameters == 48 * 4 + 4
    assert found.data.classes == CLASSES
    assert found.data.shape == (3, 4, 4)
    assert found.data.images == 60
    assert len(found.threats["l2"].flags) > 10
    assert not found.proven_wrong()
    assert found.settings.attacks == "fmn,deepfool"


def test_the_gallery_shows_what_the_model_gets_wrong(evaluated: tuple[Evaluation, list[dict[str, str]]]) -> None:
    found, rows = evaluated
    x, y = images_of(rows)
    for threat, norm in (("l2", 2.0), ("linf", float("inf"))):
        gallery = found.threats[threat].gallery
        assert gallery is not None
        wrong = int((found.prediction != found.label).sum())
        assert len(gallery.rows) == min(24, len(found) - wrong)
        at = torch.tensor(gallery.rows)
        assert torch.equal(gallery.clean, x[at])
        away = torch.linalg.vector_norm((gallery.adversarial - gallery.clean).flatten(1), norm, dim=1)
        assert_close(away, found.threats[threat].attacked.distance[at])
        assert linear()(gallery.adversarial).argmax(1).tolist() == list(gallery.prediction)
        assert not bool((torch.tensor(gallery.prediction) == y[at]).any())


def test_the_margin_is_known_on_the_way_through_the_adversarial_image(
    evaluated: tuple[Evaluation, list[dict[str, str]]],
) -> None:
    found, rows = evaluated
    _, y = images_of(rows)
    for record in found.threats.values():
        gallery = record.gallery
        assert gallery is not None
        assert gallery.segment is not None
        at, margin = torch.tensor(gallery.rows), gallery.segment.margin
        assert gallery.segment.at[0] == 0
        assert gallery.segment.at[-1] == 1.5
        assert_close(margin[:, 0], found.margin[at].float())
        assert bool((margin[:, gallery.segment.at.index(1.0)] > -1e-4).all()), "they are on the boundary"
        for place, expected in zip(gallery.segment.at, margin.T, strict=True):
            image = (gallery.clean + place * (gallery.adversarial - gallery.clean)).clamp(0, 1)
            chances = linear()(image).softmax(1)
            right = chances.gather(1, y[at, None])[:, 0]
            others = chances.scatter(1, y[at, None], -1.0).max(1).values
            assert_close(expected, (others - right).detach())


def test_tensors_and_loaders_are_data_too() -> None:
    """Without training images no L and ω of all images, and it says so; nothing global is touched."""
    test = part(20, seed=2)
    x, y = test.floats(), test.labels
    state = torch.get_rng_state()
    pairs = quick(data=(x, y), smoothing=None, regularity="ascent")
    loader = quick(data=[(x[:7], y[:7]), (x[7:], y[7:])], smoothing=None)
    local = quick(data=(x, y), smoothing=None, model=lambda images: linear()(images))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(pairs.threats["l2"].attacked.distance, loader.threats["l2"].attacked.distance)
    assert pairs.threats["l2"].bounded is None
    assert pairs.threats["l2"].refusal.startswith("There are no training images to estimate L and ω on")
    assert pairs.data.classes == ("0", "1", "2", "3")
    bounded = local.threats["l2"].bounded
    assert bounded is not None
    assert bounded.method == "local"
    assert len(bounded.omega) == len(bounded.eps)


def test_block_sizes_leave_twenty_blocks_or_a_refusal() -> None:
    assert [_block_size(images) for images in (10_000, 640, 320, 160)] == [32, 32, 16, 8]
    data = DataSet("few", part(100, seed=1), part(60, seed=2))
    few = quick(data=data, smoothing=None, attacks=["deepfool"], regularity="ascent")
    assert few.threats["l2"].refusal.startswith("100 images make 12 blocks of 8, too few")


def test_bounds_are_refused_in_words(tmp_path: Path) -> None:
    """A test set that was calibrated on would look better than it is."""
    test = part(320, seed=1)
    settings = {"images": 64, "attacks": ["deepfool"], "smoothing": None, "regularity": "ascent"}
    found = quick(tmp_path, data=test, calibration=test, **settings)
    assert found.threats["l2"].bounded is None
    assert "were used to estimate L and ω" in found.threats["l2"].refusal
    assert load(tmp_path).threats["l2"].refusal == found.threats["l2"].refusal


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "threat": ({"threat": "l3"}, ConfigError, "threat must be one of linf, l2, l1, .*; got 'l3'"),
    "no threat": ({"threat": ()}, ConfigError, "one or more of"),
    "attacks": ({"attacks": "strong"}, ConfigError, "attacks must be a suite .* got 'strong'"),
    "attack list": ({"attacks": ["fmn", "nuke"]}, ConfigError, "or a list of attacks"),
    "regularity": ({"regularity": "exact"}, ConfigError, "regularity must be one of .*; got 'exact'"),
    "sigma": ({"smoothing": (-1.0,)}, ConfigError, "smoothing must be positive; got -1.0"),
    "sigma twice": ({"smoothing": (0.5, 0.5)}, ConfigError, "must name each σ once"),
    "calibration": ({"calibration_images": 0}, ConfigError, "calibration_images must be at least 1; got 0"),
    "fit": ({"calibration_images": 159, "regularity": "ascent"}, ConfigError, "must be at least 160"),
    "batch": ({"batch_size": 0}, ConfigError, "batch_size must be at least 1; got 0"),
    "data": ({"data": 7}, DataError, "data must be a data set .*; got 7"),
    "nothing": (
        {"data": (torch.rand(0, 3, 4, 4), torch.zeros(0).long())},
        DataError,
        "The images of data must hold one image or more; got an empty batch",
    ),
    "range": ({"data": (torch.rand(9, 3, 4, 4) * 255, torch.zeros(9).long())}, DataError, "Pixels run from"),
    "classes": (
        {"data": Images(torch.zeros(3, 3, 4, 4).byte(), torch.zeros(3).long(), ("a", "b"))},
        ModelError,
        "has 4 classes and .* has 2",
    ),
    "shape": ({"data": (torch.rand(9, 1, 9, 9), torch.zeros(9).long())}, ModelError, r"of shape \(1, 9, 9\)"),
    "mode": ({"model": torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))}, ModelError, "train mode"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_sentence(kind: str) -> None:
    changes, error, sentence = BAD[kind]
    with pytest.raises(error, match=sentence) as caught:
        quick(**changes)
    assert "\n" not in str(caught.value)


def test_a_model_in_train_mode_is_refused_untouched() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), linear()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ModelError, match="train mode"):
        quick(model=model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_model_that_cannot_be_attacked_is_diagnosed_before_it_is_refused() -> None:
    class Dice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.inner(x + 0.1 * torch.randn_like(x))
            return logits

    text = StringIO()
    with pytest.raises(ModelError, match="different logits when asked again"):
        quick(model=Dice().eval(), diagnosis=True, console=Console(file=text, width=200))
    assert "error: randomised:" in text.getvalue()


def test_a_proven_bug_is_known_to_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = gradreg.diagnosis.Flag("certificate-contradicted", "error", {"value": 1}, "One of 12.", "Look.")
    monkeypatch.setattr("gradreg.evaluation.stages.diagnosis.diagnose", lambda *_, **__: [flag])
    assert quick(diagnosis=True, smoothing=None, regularity="local").proven_wrong()
