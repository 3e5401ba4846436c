"""Certificates of a classifier whose radii are known, and everything they must not depend on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from torch import Tensor, nn

from gradreg.errors import ConfigError, DataError, ModelError
from gradreg.smoothing import Certificates, average_certified_radius, certified_accuracy, certify, merge, sweep

SIGMA = 0.25
METHODS: list[Literal["sequential", "cohen"]] = ["sequential", "cohen"]


class Half(nn.Module):
    """Two classes on either side of ⟨w, x⟩ = ½⟨w, 1⟩, ‖w‖ = 1: smoothing leaves them so, and distances are exact."""

    def __init__(self) -> None:
        super().__init__()
        w = torch.randn(12)
        self.w = nn.Buffer(w / w.norm())
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        value = self.distance(x)
        return torch.stack([-value, value], 1)

    def distance(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) @ self.w

    def images_at(self, distance: float, count: int) -> Tensor:
        """Different images, all at that signed distance from the boundary."""
        x = 0.5 + 0.1 * torch.rand(count, 12)
        x = x + (distance - self.distance(x))[:, None] * self.w
        return x.view(count, 3, 2, 2)


@pytest.fixture
def half() -> Half:
    model = Half()
    model.eval()
    return model


@pytest.fixture
def images() -> Tensor:
    return torch.rand(24, 3, 2, 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("distance", [0.05, -0.2])
def test_radii_exceed_the_true_distance_with_probability_alpha_at_most(
    half: Half, method: Literal["sequential", "cohen"], distance: float
) -> None:
    """Coverage by 1,200 independent repetitions, at an α large enough to be seen."""
    alpha, images = 0.05, half.images_at(distance, 1200)
    found = certify(half, images, sigma=SIGMA, alpha=alpha, n=300, n0=30, method=method)
    predicted = found.prediction >= 0
    wrong = predicted & ((found.prediction == 1) != (distance > 0))
    too_far = predicted & (found.radius > abs(distance) + 1e-6)
    rate = float((wrong | too_far).double().mean())
    assert rate <= alpha + 3 * (alpha * (1 - alpha) / 1200) ** 0.5
    assert float(found.radius.mean()) > 0.15 * abs(distance)


def test_cohens_procedure_is_cohens(half: Half) -> None:
    """n0 + n samples, the Clopper-Pearson limit of the hits, abstention below ½."""
    distance = torch.tensor([0.02, 0.2, 0.5, 2.0])
    images = torch.cat([half.images_at(float(one), 1) for one in distance]).clamp(-9, 9)
    model = lambda x: half(x)  # noqa: E731, a bare function is a model too
    found = certify(_unboxed(model), images, sigma=SIGMA, method="cohen", n=10_000)
    assert found.samples.tolist() == [10_100] * 4
    certain = SIGMA * norm.ppf(beta.ppf(0.001, 10_000, 1))
    assert float(found.radius[3]) == pytest.approx(certain, rel=1e-9)
    assert bool((found.radius <= distance).all())
    for radius, one in zip(found.radius[1:3].tolist(), distance[1:3].tolist(), strict=True):
        # A radius is one of 10,000 possible ones, so it tells how many samples hit.
        hits = np.arange(1, 10_001)
        possible = np.asarray(SIGMA * norm.ppf(beta.ppf(0.001, hits, 10_001 - hits)))
        nearest = np.abs(possible - radius).argmin()
        assert possible[nearest] == pytest.approx(radius, rel=1e-9)
        p = norm.cdf(one / SIGMA)
        assert abs(hits[nearest] - 10_000 * p) <= 3 * (10_000 * p * (1 - p)) ** 0.5
    rounded = certify(_unboxed(model), images, sigma=SIGMA, method="cohen", n=10_000, radii=[0.0, 0.125, 0.25])
    assert rounded.radius.tolist() == [0.0, 0.125, 0.25, 0.25]
    assert torch.equal(rounded.prediction, found.prediction)


def _unboxed(model: Callable[[Tensor], Tensor]) -> Any:
    from gradreg.classifier import Classifier

    return Classifier(model, box=(-9.0, 9.0))


def test_a_single_radius_is_answered_yes_or_no(half: Half) -> None:
    images = torch.cat([half.images_at(one, 1) for one in (0.05, 0.15, 0.35, -0.35)])
    found = certify(half, images, sigma=SIGMA, radii=[0.25])
    assert found.radius.tolist() == [0.0, 0.0, 0.25, 0.25]
    assert found.prediction.tolist() == [-1, -1, 1, 0]
    assert found.kind == "probabilistic"
    assert int(found.samples.max()) < 10_000


def test_without_radii_they_are_told_closely_enough(half: Half) -> None:
    exact = torch.tensor([0.1, 0.2, 0.3, 0.45])
    images = torch.cat([half.images_at(float(one), 1) for one in exact])
    found = certify(half, images, sigma=SIGMA, n=20_000)
    assert bool((found.radius <= exact).all())
    assert bool((found.radius >= exact - 0.3 * SIGMA).all())


@pytest.mark.parametrize("method", METHODS)
def test_results_depend_on_neither_batch_size_nor_order_nor_shards(
    half: Half, images: Tensor, method: Literal["sequential", "cohen"]
) -> None:
    def run(x: Tensor, **options: Any) -> Certificates:
        return certify(half, x, sigma=SIGMA, n=2000, method=method, radii=[0.0, 0.1, 0.2], **options)

    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state(legacy=False)
    one = run(images, batch_size=1000)
    half.rows.clear()
    other = run(images, batch_size=37)
    assert max(half.rows) == 37
    assert half.rows.count(37) > 0.9 * (len(half.rows) - 1)
    for name in ("prediction", "radius", "samples"):
        assert torch.equal(getattr(one, name), getattr(other, name))
        assert torch.equal(getattr(one, name).flip(0), getattr(run(images.flip(0)), name))
    parts = [run(images, shard=(rank, 3)) for rank in (2, 0, 1)]
    assert torch.equal(merge(parts).radius, one.radius)
    assert torch.equal(merge(parts).index, torch.arange(24))
    assert torch.equal(torch_state, torch.get_rng_state())
    assert str(numpy_state) == str(np.random.get_state(legacy=False))
    assert not torch.equal(run(images, seed=1).samples, one.samples) or method == "cohen"
    with pytest.raises(DataError, match="missing or twice"):
        merge(parts[:2])
    with pytest.raises(DataError, match="of the same images"):
        merge([parts[0], run(images.flip(0), shard=(0, 3))])
    with pytest.raises(ConfigError, match="nothing to merge"):
        merge([])


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_run_goes_on_where_it_stopped(
    half: Half, images: Tensor, method: Literal["sequential", "cohen"], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"sigma": SIGMA, "n": 2000, "method": method, "batch_size": 64}
    whole = certify(half, images, **options)
    state = tmp_path / "state.safetensors"

    def stop(done: int, total: int) -> None:
        assert total == 24
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(half, images, **options, state=state, progress=stop)
    half.rows.clear()
    seen: list[int] = []
    resumed = certify(half, images, **options, state=state, progress=lambda done, total: seen.append(done))
    assert seen == list(range(11, 25))
    assert sum(half.rows) < int(whole.samples.sum())
    for name in ("prediction", "radius", "samples", "index"):
        assert torch.equal(getattr(whole, name), getattr(resumed, name))
    half.rows.clear()
    assert torch.equal(certify(half, images, **options, state=state).radius, whole.radius)
    assert sum(half.rows) == 24 + 2 * 8 + 24 + 2 * 4  # the checks and the fingerprint alone
    with pytest.raises(ConfigError, match="was begun with other settings; continue"):
        certify(half, images, **{**options, "sigma": 0.5}, state=state)


def test_certificates_are_saved_and_read_back(half: Half, images: Tensor, tmp_path: Path) -> None:
    found = certify(half, images, sigma=SIGMA, n=500, radii=[0.1])
    found.save(tmp_path / "found.safetensors")
    again = Certificates.load(tmp_path / "found.safetensors")
    assert again.settings == found.settings
    assert torch.equal(again.radius, found.radius)


class Slices(nn.Module):
    """Answers with a class by the first pixel's interval, so that all probabilities are known."""

    def forward(self, x: Tensor) -> Tensor:
        edges = torch.tensor([0.2, 0.45, 0.6])
        place = torch.searchsorted(edges, x.flatten(1)[:, 0].contiguous())
        return nn.functional.one_hot(place, 4).float() * 5


def test_top_k_certificates_of_known_probabilities() -> None:
    model, x = Slices().eval(), torch.full((1, 1, 2, 2), 0.5)
    edges = norm.cdf((np.array([-np.inf, 0.2, 0.45, 0.6, np.inf]) - 0.5) / SIGMA)
    chance = np.diff(edges)
    label = 1
    exact = SIGMA * (norm.ppf(chance[label]) - norm.ppf(1 / 3))
    found = certify(model, x, sigma=SIGMA, topk=2, labels=torch.tensor([label]), method="cohen", n=50_000)
    assert found.samples.tolist() == [50_000]
    assert exact - 0.02 < float(found.radius[0]) <= exact if exact > 0 else found.prediction.tolist() == [-1]
    wider = certify(model, x, sigma=SIGMA, topk=3, labels=torch.tensor([label]), n=50_000)
    limit = SIGMA * (norm.ppf(chance[label]) - norm.ppf(1 / 4))
    assert limit - 0.3 * SIGMA < float(wider.radius[0]) <= limit
    alone = certify(model, x, sigma=SIGMA, labels=torch.tensor([0]), n=5000)
    assert alone.prediction.tolist() == [-1]


def test_accuracy_average_radius_and_sweep(half: Half) -> None:
    images = torch.cat([half.images_at(one, 1) for one in (0.05, 0.15, 0.35, -0.35)])
    y = torch.tensor([1, 1, 1, 1])
    # Enough samples to pick the class of the nearest image, which is right under 58 % of the noise only.
    found = certify(half, images, sigma=SIGMA, radii=[0.0, 0.1, 0.25], n0=1000)
    rows = certified_accuracy(found, y, [0.0, 0.1, 0.25, 0.5])
    assert [row.accuracy for row in rows] == [0.75, 0.5, 0.25, 0.0]
    assert all(row.low <= row.accuracy <= row.high and row.n == 4 for row in rows)
    assert average_certified_radius(found, y) == pytest.approx((0.0 + 0.1 + 0.25) / 4)
    both = sweep(half, images, y, sigmas=[0.12, 0.5], radii=[0.0, 0.25], n=2000)
    assert [row.best_over_sigma for row in both.best] == [True, True]
    assert not both.accuracies[0][0].best_over_sigma
    for column, row in enumerate(both.best):
        assert row.accuracy == max(one[column].accuracy for one in both.accuracies)
    with pytest.raises(ConfigError, match=r"sigmas must be one or more numbers; got \[\]"):
        sweep(half, images, y, sigmas=[], radii=[0.1])
    with pytest.raises(DataError, match=r"at least 4; got a Tensor of torch.int64 and shape \(2,\)"):
        certified_accuracy(found, y[:2], [0.1])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "sigma": ({"sigma": 0.0}, r"sigma must be positive \(0.25 is usual\); got 0\.0"),
    "nan": ({"sigma": float("nan")}, "sigma must be .* got nan"),
    "alpha": ({"alpha": 0.0}, r"alpha must be .* got 0\.0"),
    "alpha 1": (
        {"alpha": 1.0},
        r"alpha must be above 0 and below 1 \(the probability.*; got 1\.0",
    ),
    "n0": ({"n": 50, "n0": 100}, "got n0=100, n=50"),
    "radii": ({"radii": [0.5, 0.25]}, "radii must be .*ascending order"),
    "no radii": ({"radii": []}, "radii must be one or more"),
    "too few": ({"n": 9, "n0": 5}, "n = 9 samples cannot certify"),
    "too few for Cohen": ({"n": 9, "n0": 5, "method": "cohen"}, "n = 9 samples cannot certify"),
    "too far": ({"radii": [5.0]}, "cannot certify any of the radii"),
    "endless": ({"n": 10**12}, "n must be from 1 to 10000000 .samples per image.*; got 1000000000000"),
    "endless for Cohen": ({"n": 10**12, "method": "cohen"}, "n must be from 1 to 10000000"),
    "method": ({"method": "guess"}, "method must be .* got 'guess'"),
    "topk": ({"topk": 2}, "topk must be from 1 to 1 .the model has 2 classes.; got 2"),
    "batch": ({"batch_size": 0}, "batch_size must be at least 1; got 0"),
    "shard": ({"shard": (3, 3)}, "shard must be .* got .3, 3."),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_refused_in_one_sentence(half: Half, images: Tensor, name: str) -> None:
    options, message = BAD[name]
    with pytest.raises(ConfigError, match=message):
        certify(half, images, **{"sigma": SIGMA, **options})


def test_bad_images_labels_and_models_are_refused(half: Half, images: Tensor) -> None:
    with pytest.raises(DataError, match="outside the box"):
        certify(half, images + 1, sigma=SIGMA)
    with pytest.raises(DataError, match="got an empty batch of shape"):
        certify(half, images[:0], sigma=SIGMA)
    with pytest.raises(DataError, match=r"labels must hold 24 integer labels; got torch.int64 of shape \(3,\)"):
        certify(half, images, sigma=SIGMA, labels=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(DataError, match="y must hold labels from 0 to 1, the model's classes; got 7 to 7"):
        certify(half, images, sigma=SIGMA, labels=torch.full((24,), 7))
    half.train()
    with pytest.raises(ModelError, match="train mode"):
        certify(half, images, sigma=SIGMA)
    half.eval()

    def fragile(x: Tensor) -> Tensor:
        logits: Tensor = half(x)
        return logits / (x.amin((1, 2, 3)) >= 0)[:, None]

    with pytest.raises(ModelError, match="not finite on image"):
        certify(fragile, images, sigma=SIGMA)
