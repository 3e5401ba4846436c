"""The solver against closed forms, its census of passes, and the limits of §2.2."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from gradreg.bounds import (
    BoundsError,
    Regularity,
    bounds,
    curvature_radius,
    estimate_regularity,
    largest_radius,
    violations,
)
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError, DataError
from gradreg.norms import THREATS
from gradreg.penalty.passes import Model

GAP = torch.rand(200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
SLOPE = 0.1 + torch.rand(200, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
FINE = torch.linspace(0, 12, 4001, dtype=torch.float64)[1:]


def test_without_error_the_bound_is_the_gap_over_the_gradient() -> None:
    for envelope in ("step", "linear"):
        found, censored = largest_radius(GAP, SLOPE, FINE, torch.zeros_like(FINE), envelope)
        assert_close(found, GAP / SLOPE)
        assert not censored.any()


def test_a_linear_modulus_has_a_closed_form() -> None:
    assert_close(largest_radius(GAP, SLOPE, FINE, 0.7 * FINE, "linear")[0], GAP / (SLOPE + 0.7))


def test_a_quadratic_modulus_has_a_closed_form_and_the_step_envelope_stays_below_it() -> None:
    exact = curvature_radius(GAP, SLOPE, torch.full_like(GAP, 0.8))
    assert_close(exact, (-SLOPE + (SLOPE**2 + 1.6 * GAP).sqrt()) / 0.8)
    omega = 0.4 * FINE**2
    linear, _ = largest_radius(GAP, SLOPE, FINE, omega, "linear")
    step, _ = largest_radius(GAP, SLOPE, FINE, omega)
    assert_close(linear, exact, rtol=1e-4, atol=1e-6)
    assert bool((step <= exact + 1e-12).all())
    assert float((exact - step).max()) <= float(FINE[0])


@pytest.mark.parametrize("envelope", ["step", "linear"])
def test_the_answer_is_the_last_radius_that_satisfies_the_inequality(envelope: str) -> None:
    """Against a search over many radii, with a modulus of its own for each image and gradients of zero."""
    source = torch.Generator().manual_seed(2)
    eps = torch.tensor([0.1, 0.2, 0.5, 1.0, 2.0], dtype=torch.float64)
    omega = torch.rand(200, 5, generator=source, dtype=torch.float64).cumsum(1) / 4
    slope = SLOPE.where(torch.arange(200) % 3 > 0, 0)
    found, censored = largest_radius(GAP, slope, eps, omega, envelope)  # type: ignore[arg-type]
    tried = torch.linspace(0, 2, 8001, dtype=torch.float64)[1:]
    place = torch.searchsorted(eps, tried - 1e-9)
    knots, values = torch.cat([torch.zeros(1).double(), eps]), torch.cat([torch.zeros(200, 1).double(), omega], 1)
    share = (
        (tried - knots[place]) / (knots[place + 1] - knots[place]) if envelope == "linear" else torch.ones_like(tried)
    )
    at = values[:, place] + share * (values[:, place + 1] - values[:, place])
    holds = (GAP[:, None] - at - slope[:, None] * tried >= 0).to(torch.int64).cumprod(1).sum(1)
    assert_close(found, torch.cat([torch.zeros(1).double(), tried])[holds], atol=3e-4, rtol=0)
    assert torch.equal(censored, holds == len(tried))


def test_flat_and_misclassified_images_need_no_special_care() -> None:
    gap = torch.tensor([0.5, 0.5, 0.0, 0.0])
    slope = torch.tensor([0.0, 0.0, 0.0, 1.0])
    omega = torch.tensor([[0.1, 0.4], [0.1, 0.6], [0.0, 0.0], [0.0, 0.0]])
    found, censored = largest_radius(gap, slope, torch.tensor([1.0, 2.0]), omega)
    assert_close(found, torch.tensor([2.0, 1.0, 0.0, 0.0]))
    assert censored.tolist() == [True, False, False, False]


@pytest.mark.parametrize("threat", list(THREATS))
def test_on_an_affine_model_both_bounds_are_the_exact_distance(threat: str, images: Tensor) -> None:
    """ω = 0 and one gradient everywhere: the distance to the hyperplane, in the threat's own norm."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double().eval()
    labels = model(images).argmax(1)
    normal = (model[1].weight[0] - model[1].weight[1]).detach()  # type: ignore[index]
    exact = (model(images)[:, 0] - model(images)[:, 1]).detach().abs() / THREATS[threat].dual_norm(normal[None])
    eps = torch.linspace(0, 1.1 * float(exact.max()), 9)[1:]
    known = estimate_regularity(
        model, (images[:40], labels[:40]), THREATS[threat], eps=eps.tolist(), scores="logits", block_size=2, clip=False,
        steps=2,
    )  # fmt: skip
    found = bounds(model, images[40:], labels[40:], known)
    assert_close(found.lipschitz, exact[40:], rtol=1e-6, atol=0)
    assert_close(found.omega, exact[40:], rtol=1e-6, atol=1e-9)
    checked = violations(found.best * (1 - 1e-6), exact[40:])
    assert checked.rate == 0
    assert checked.tightness == pytest.approx(1, rel=1e-5)


def test_temperature_does_not_buy_robustness(images: Tensor, linear: nn.Sequential) -> None:
    """§2.2: a cold softmax sends L to infinity, a hot one closes the gap.

    A cold one sends both bounds to zero, and so does a hot one if L is that of the model before. But a hot softmax
    shrinks L and ω at the same rate as the gap, so with them estimated anew the bounds settle at those of the logits.
    """
    linear[1].bias.data.zero_()  # type: ignore[operator]
    labels = linear(images - 0.5).argmax(1)
    data, x, y = (images[:40], labels[:40]), images[40:], labels[40:]

    def at(temperature: float) -> Model:
        return lambda pixels: linear(pixels - 0.5) / temperature

    usual = estimate_regularity(at(1.0), data, block_size=2, steps=2)
    given_L = {heat: float(bounds(at(heat), x, y, usual).lipschitz.mean()) for heat in (1.0, 1e2, 1e4)}
    assert given_L[1e2] < 0.02 * given_L[1.0]
    assert given_L[1e4] < 2e-4 * given_L[1.0]

    anew = {}
    for heat in (3e-3, 1e-2, 1e-1, 1.0, 1e2, 1e4):
        known = estimate_regularity(at(heat), data, block_size=2, steps=2)
        anew[heat] = float(bounds(at(heat), x, y, known).best.mean())
    assert anew[3e-3] < anew[1e-2] < anew[1e-1] < anew[1.0]
    assert anew[3e-3] < 0.2 * anew[1.0]
    assert anew[1e4] == pytest.approx(anew[1e2], rel=1e-2)
    with pytest.raises(BoundsError, match="of exactly zero"):
        estimate_regularity(at(1e-6), data, block_size=2)


def test_exactly_one_forward_and_one_backward_an_image(images: Tensor, linear: nn.Module) -> None:
    labels = torch.arange(60) % 4
    model = Classifier(linear)
    known = Regularity("l2", "given", torch.tensor(3.0), torch.tensor([0.5, 1.0]), torch.tensor([0.1, 0.2]))
    with model.counted(60) as queries:
        found = bounds(model, images, labels, known, batch_size=60)
    assert queries.forwards.tolist() == queries.backwards.tolist() == [1] * 60
    for size in (1, 7):
        again = bounds(model, images, labels, known, batch_size=size) if size == 1 else found
        assert_close(again.omega, found.omega)
    wrong = linear(images).argmax(1) != labels
    assert bool((found.best[wrong] == 0).all())
    assert bool((found.best[~wrong] > 0).all())


def test_statistics_are_those_of_table_3(images: Tensor, linear: nn.Module) -> None:
    known = Regularity("l2", "given", torch.tensor(3.0), torch.tensor([0.5, 1.0]), torch.tensor([0.1, 0.2]))
    found = bounds(linear, images, torch.zeros(60, dtype=torch.int64), known)
    numbers = found.statistics()
    assert numbers["omega(0.5)"] == pytest.approx(0.1)
    assert numbers["omega(1.0)"] == pytest.approx(0.2)
    assert numbers["grad_norm_max"] >= numbers["grad_norm_mean"] > 0
    assert found.kind == "heuristic"
    assert bool(known.omega_at(1.5).isnan())
    assert float(known.omega_at(0.0)) == 0


def test_a_regularity_is_saved_and_read_back(tmp_path: Path) -> None:
    known = Regularity(
        "linf",
        "ascent",
        torch.tensor(3.0),
        torch.tensor([0.5, 1.0]),
        torch.tensor([0.1, 0.2]),
        topk=2,
        flags=("a", "b"),
    )
    known.save(tmp_path / "known.safetensors")
    again = Regularity.load(tmp_path / "known.safetensors")
    assert again.flags == ("a", "b")
    assert again.topk == 2
    assert torch.equal(again.omega, known.omega)
    assert [file.name for file in tmp_path.iterdir()] == ["known.safetensors"]
    (tmp_path / "other").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="cannot be read as a regularity file"):
        Regularity.load(tmp_path / "other")


def test_violations_count_what_an_attack_refutes() -> None:
    bound = torch.tensor([0.5, 1.5, 0.0, 2.0, 1.0])
    distance = torch.tensor([1.0, 1.0, 0.0, torch.inf, 1.0])
    found = violations(bound, distance, kind="sound")
    assert (found.rate, found.worst_ratio, found.n, found.unbroken, found.kind) == (0.25, 1.5, 4, 1, "sound")
    assert found.tightness == pytest.approx(1.0)
    with pytest.raises(DataError, match="distance must have one entry per image, 5; got 2"):
        violations(bound, distance[:2])
    with pytest.raises(DataError, match="negative or NaN"):
        violations(-bound, distance)
    with pytest.raises(ConfigError, match=r"kind must be .* got 'certain'"):
        violations(bound, distance, kind="certain")  # type: ignore[arg-type]


def test_bad_regularities_and_images_are_refused(images: Tensor, linear: nn.Module) -> None:
    one, eps, omega = torch.tensor(1.0), torch.tensor([0.5, 1.0]), torch.tensor([0.1, 0.2])
    with pytest.raises(ConfigError, match="ascending"):
        Regularity("l2", "given", one, eps.flip(0), omega)
    with pytest.raises(ConfigError, match="ω must be ≥ 0 and must not fall"):
        Regularity("l2", "given", one, eps, omega.flip(0))
    with pytest.raises(ConfigError, match="L must be positive"):
        Regularity("l2", "given", one * 0, eps, omega)
    with pytest.raises(ConfigError, match="ω must have shape"):
        Regularity("l2", "given", one, eps, omega[:1])
    known = Regularity("l2", "given", one, eps, omega)
    labels = torch.zeros(60, dtype=torch.int64)
    with pytest.raises(ConfigError, match=r"envelope must be .* got 'curve'"):
        bounds(linear, images, labels, known, envelope="curve")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="batch_size must be at least 1; got 0"):
        bounds(linear, images, labels, known, batch_size=0)
    with pytest.raises(DataError, match="outside the box"):
        bounds(linear, images - 5 * (torch.arange(60) == 33).view(-1, 1, 1, 1), labels, known)
    with pytest.raises(DataError, match="y must hold labels from 0 to 3, the model's classes; got 0 to 9"):
        bounds(linear, images, labels + 9 * (torch.arange(60) == 20), known)


def test_gradreg_bounds_is_the_function_whatever_was_imported() -> None:
    """`gradreg.bounds(model, x, y, regularity)`, though there is a package of that name too."""
    assert import_module("gradreg.bounds").bounds is bounds
    assert gradreg.bounds is bounds


def test_importing_bounds_and_smoothing_does_not_import_scipys_heavy_parts() -> None:
    code = "import sys, gradreg.bounds, gradreg.smoothing; sys.exit('scipy.stats' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bounds_do_not_need_attacks() -> None:
    code = (
        "import sys, gradreg.bounds as b; [getattr(b, n) for n in dir(b)]; sys.exit('gradreg.attacks' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
