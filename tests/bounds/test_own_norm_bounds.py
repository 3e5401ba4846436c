"""Bounds in norms without a short name: "these bounds are valid in any norm with corresponding dual" (§2.2)."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.attacks import attack
from gradreg.bounds import Regularity, bounds, clever, estimate_regularity, sound_radius, violations
from gradreg.bounds.estimation import Method
from gradreg.errors import ConfigError
from gradreg.norms import Threat, Weighted
from own_norms import SHAPE, ThreeHalves, own_norms, weights

NORMS = own_norms()
each = pytest.mark.parametrize("t", NORMS.values(), ids=NORMS)


@pytest.fixture
def plane() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double().eval()


@pytest.fixture
def images() -> Tensor:
    return 0.3 + 0.4 * torch.rand(64, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def exact_distance(plane: nn.Sequential, x: Tensor, t: Threat) -> Tensor:
    layer = plane[1]
    assert isinstance(layer, nn.Linear)
    margin: Tensor = (plane(x)[:, 0] - plane(x)[:, 1]).detach().abs()
    return margin / t.dual_norm((layer.weight[0] - layer.weight[1]).detach().view(1, *SHAPE))


@each
@pytest.mark.parametrize("method", ["paper", "ascent", "local"])
def test_bounds_of_a_linear_model_are_its_distances(
    method: Method, t: Threat, plane: nn.Sequential, images: Tensor
) -> None:
    y, exact = plane(images).argmax(1), exact_distance(plane, images, t)
    grid = torch.linspace(0, 2 * float(exact.max()), 11)[1:].tolist()
    regularity = estimate_regularity(
        plane,
        (images, y),
        t,
        method=method,
        scores="logits",
        eps=grid,
        block_size=3,
        lipschitz_steps=2,
    )
    assert regularity.threat == t.name
    assert_close(regularity.omega, torch.zeros_like(regularity.omega), atol=1e-9, rtol=0)
    fresh = images if method == "local" else images.flip(0) + 0.01
    found = bounds(plane, fresh, plane(fresh).argmax(1), regularity)
    assert_close(found.lipschitz, exact_distance(plane, fresh, t), rtol=1e-6, atol=0)
    assert_close(found.omega, exact_distance(plane, fresh, t), rtol=1e-6, atol=0)
    assert found.threat == t.name


@each
def test_clever_of_a_linear_model_is_its_distance(t: Threat, plane: nn.Sequential, images: Tensor) -> None:
    few, y = images[:6], plane(images[:6]).argmax(1)
    score = clever(plane, few, y, threat=t, blocks=3, samples=2, radius=100.0).score
    assert_close(score, exact_distance(plane, few, t), rtol=1e-6, atol=0)


def test_local_bounds_hold_on_a_curved_model(images: Tensor) -> None:
    """Against the distances that the attacks find."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 24), nn.Tanh(), nn.Linear(24, 3)).double().eval()
    next(model.parameters()).data.mul_(3)
    x = images[:24]
    y = model(x).argmax(1)
    for kind in ("weighted linf", "mahalanobis", "pixelwise", "three halves", "sum of channels"):
        t = NORMS[kind]
        far = attack(model, x, y, threat=t, attacks=["fmn", "deepfool"]).distance
        grid = torch.linspace(0, 1.2 * float(far.max()), 21)[1:].tolist()
        regularity = estimate_regularity(model, (x, y), t, method="local", eps=grid)
        seen = violations(bounds(model, x, y, regularity).omega, far)
        assert seen.rate == 0, kind
        assert seen.tightness > 0.4, kind


def test_the_default_grid_reaches_as_far_as_in_l2(plane: nn.Sequential, images: Tensor) -> None:
    y = plane(images).argmax(1)
    for t, end in ((NORMS["weighted l2"], 2.0), (NORMS["weighted linf"], 0.1)):
        assert float(estimate_regularity(plane, (images, y), t, method="local").eps[-1]) == pytest.approx(end)
    reach = float(estimate_regularity(plane, (images, y), ThreeHalves(), method="local").eps[-1])
    assert 2.0 < reach < 2.0 * 48 ** (2 / 3 - 1 / 2)


def test_a_saved_regularity_asks_for_its_norm(tmp_path: Path, plane: nn.Sequential, images: Tensor) -> None:
    y, path = plane(images).argmax(1), tmp_path / "regularity.safetensors"
    t = Weighted("l2", weights())
    made = estimate_regularity(plane, (images, y), t, method="local")
    made.save(path)
    again = Regularity.load(path, threat=Weighted("l2", weights()))
    assert_close(bounds(plane, images, y, again).omega, bounds(plane, images, y, made).omega)
    with pytest.raises(ConfigError, match=rf"is about the norm '{t.name}': pass it as threat=; got none"):
        Regularity.load(path)
    with pytest.raises(ConfigError, match=rf"about the norm '{t.name}': .*; got weighted-"):
        Regularity.load(path, threat=Weighted("l2", weights(seed=1)))
    with pytest.raises(ConfigError, match="geometry must be the norm l2; got three-halves"):
        Regularity("l2", "given", torch.ones(()), torch.ones(1), torch.ones(1), geometry=ThreeHalves())
    with pytest.raises(ConfigError, match="threat must be one of"):
        Regularity("mine", "given", torch.ones(()), torch.ones(1), torch.ones(1))


def test_sound_radii_are_for_lp_norms(plane: nn.Sequential, images: Tensor) -> None:
    with pytest.raises(ConfigError, match="auto_LiRPA proves radii in l1, l2 and l∞; got three-halves-"):
        sound_radius(plane, images, plane(images).argmax(1), threat=ThreeHalves())
