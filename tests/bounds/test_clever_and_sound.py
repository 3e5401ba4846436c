"""CLEVER on models whose Lipschitz constant is known, and the sound radii's bisection."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.bounds import clever, sound_radius
from gradreg.bounds.sound import bisect
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError, ModelError
from gradreg.norms import THREATS


@pytest.mark.parametrize("threat", list(THREATS))
def test_clever_on_a_linear_model_is_the_exact_distance(threat: str, images: Tensor) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double().eval()
    y = model(images).argmax(1)
    normal = (model[1].weight[0] - model[1].weight[1]).detach()  # type: ignore[index]
    exact = (model(images)[:, 0] - model(images)[:, 1]).detach().abs() / THREATS[threat].dual_norm(normal[None])
    found = clever(model, images, y, threat=THREATS[threat], blocks=5, samples=4, radius=100.0)
    assert_close(found.score, exact, rtol=1e-6, atol=0)
    assert bool(found.fallback.all())
    assert bool((clever(model, images, 1 - y, blocks=5, samples=4).score == 0).all())
    assert bool((clever(model, images, y, blocks=5, samples=4, radius=1e-6).score == 1e-6).all())


def test_clever_of_a_smooth_model_does_not_depend_on_batches(
    smooth_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    x, _ = batch
    smooth_net.eval()
    y = smooth_net(x).argmax(1)
    before = torch.get_rng_state()
    one = clever(smooth_net, x, y, blocks=20, samples=16, radius=0.5)
    other = clever(smooth_net, x, y, blocks=20, samples=16, radius=0.5, batch_size=5)
    assert_close(one.score, other.score)
    assert torch.equal(before, torch.get_rng_state())
    assert bool((one.score > 0).all())
    few = clever(smooth_net, x, y, blocks=3, samples=1, radius=0.5, seed=1)
    assert float(one.lipschitz.mean()) > 0.9 * float(few.lipschitz.mean())


def test_clever_refuses_what_it_cannot_fit(linear: nn.Module, images: Tensor) -> None:
    with pytest.raises(ConfigError, match="blocks must be at least 3; got 2"):
        clever(linear, images, torch.zeros(60, dtype=torch.int64), blocks=2)


def test_bisection_ends_below_the_threshold() -> None:
    assert bisect(lambda radius: radius <= 0.3, 1.0, 10) == pytest.approx(0.3, abs=1e-3)
    assert bisect(lambda radius: radius <= 0.3, 1.0, 10) <= 0.3
    assert bisect(lambda radius: True, 1.0, 10) == 1.0
    assert bisect(lambda radius: False, 1.0, 10) == 0.0


def test_without_auto_lirpa_sound_bounds_say_what_to_install(
    linear: nn.Module, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "auto_LiRPA", None)
    with pytest.raises(ConfigError, match="need auto_LiRPA, which is not installed: pip install"):
        sound_radius(linear, images, torch.zeros(60, dtype=torch.int64))


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that is imported as auto_LiRPA, with what there is to say of a ball."""
    fake: Any = ModuleType("auto_LiRPA")
    fake.PerturbationLpNorm = lambda norm, eps: SimpleNamespace(norm=norm, eps=eps)
    fake.BoundedTensor = lambda x, ball: SimpleNamespace(x=x, ball=ball)
    monkeypatch.setitem(sys.modules, "auto_LiRPA", fake)
    monkeypatch.setitem(sys.modules, "auto_LiRPA.perturbations", ModuleType("auto_LiRPA.perturbations"))
    return fake


def test_sound_radii_of_a_linear_model_are_its_distances(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for auto_LiRPA that is exact on linear models, called as the real one is."""
    layer = nn.Linear(48, 3).double()
    model, weight = nn.Sequential(nn.Flatten(), layer).eval(), layer.weight.detach()
    classifier = Classifier(model, mean=[0.25] * 3, std=[0.5] * 3)
    weight = weight / 0.5

    class Bounded:
        def __init__(self, traced: nn.Module, example: Tensor, device: str) -> None:
            # The real one sets the mode to that of what it is given, and runs its example through it.
            assert not any(module.training for module in traced.modules())
            traced.train()(example.double())
            self.traced = traced

        def compute_bounds(self, x: tuple[Any], C: Tensor, method: str, bound_upper: bool) -> tuple[Tensor, None]:
            (region,) = x
            slopes = C[0] @ weight
            return (C @ self.traced(region.x)[0]) - region.ball.eps * slopes.norm(dim=1), None

    stand_in(monkeypatch).BoundedModule = Bounded
    x = images[:8]
    logits = classifier(x).detach()
    y = logits.argmax(1)
    y[0] = (y[0] + 1) % 3
    found = sound_radius(classifier, x, y, halvings=14)
    assert not model.training
    with pytest.raises(ModelError, match="cannot see into a bare function"):
        sound_radius(Classifier(lambda pixels: model(pixels)), x, y)
    for row in range(8):
        rivals = [other for other in range(3) if other != int(y[row])]
        exact = min(
            float((logits[row, y[row]] - logits[row, other]) / (weight[y[row]] - weight[other]).norm())
            for other in rivals
        )
        assert float(found[row]) <= max(exact, 0) + 1e-9
        assert float(found[row]) == pytest.approx(min(max(exact, 0), 1.0), abs=2e-4)


def test_a_layer_that_auto_lirpa_does_not_know_is_said_in_one_sentence(
    linear: nn.Module, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its release refuses GELU with a bare NotImplementedError."""

    def refuse(traced: nn.Module, example: Tensor, device: str) -> None:
        raise NotImplementedError("There are unsupported operations")

    stand_in(monkeypatch).BoundedModule = refuse
    with pytest.raises(ModelError, match=r"cannot bound an operation of this model .* use layers that it knows"):
        sound_radius(linear, images, torch.zeros(60, dtype=torch.int64))
