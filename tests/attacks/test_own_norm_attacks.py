"""Attacks in norms that they know nothing of, on models whose distances are known."""

from dataclasses import dataclass

import pytest
import torch
from attack_models import Linear, small_network
from torch import Tensor

from gradreg import ConfigError, GradregWarning, regularized_loss
from gradreg.attacks import Pool, attack, autoattack
from gradreg.attacks.suite import ATTACKS
from gradreg.norms import L1, L2, Threat, ThreatName, Weighted, threat
from own_norms import SHAPE, SumOfChannels, ThreeHalves, own_norms, weights

NORMS = own_norms()
each = pytest.mark.parametrize("t", NORMS.values(), ids=NORMS)
KINDS = ("weighted linf", "weighted l1", "mahalanobis", "pixelwise", "three halves", "sum of channels")
each_kind = pytest.mark.parametrize("t", [NORMS[kind] for kind in KINDS], ids=KINDS)
# Far enough from the walls for every norm here: the images are grey, and their margins small.
NEAR = 0.05


def hyperplanes(classes: int) -> tuple[Linear, Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    weight = torch.randn(classes, 48, generator=source)
    x = 0.45 + 0.1 * torch.rand(6, *SHAPE, generator=source)
    model = Linear(weight, torch.zeros(classes))
    # All classes meet near the middle of the box.
    model.bias.data = -(weight * 0.5).sum(1) + NEAR * torch.randn(classes, generator=source)
    return model.eval(), x, model(x).argmax(1)


def exact_distance(model: Linear, x: Tensor, y: Tensor, t: Threat) -> Tensor:
    """The smallest margin over dual norm, at a point that lies in the box."""
    logits, weight = model(x).detach(), model.weight.detach()
    rivals = []
    for rival in range(len(weight)):
        lead = logits.gather(1, y[:, None]).squeeze(1) - logits[:, rival]
        slope = t.dual_norm((weight[rival] - weight[y]).view(-1, *SHAPE))
        reached = (lead / slope).where(y != rival, torch.inf)
        rivals.append(reached)
    distance, nearest = torch.stack(rivals).min(0)
    point = x + distance.view(-1, 1, 1, 1) * t.ascent((weight[nearest] - weight[y]).view(-1, *SHAPE))
    assert point.min() > 0
    assert point.max() < 1
    return distance


@each_kind
@pytest.mark.parametrize("name", ["deepfool", "fmn", "pgd", "apgd", "carlini_wagner", "logbarrier"])
def test_distance_to_a_hyperplane(name: str, t: Threat) -> None:
    model, x, y = hyperplanes(2)
    ratio = ATTACKS[name](model, x, y, threat=t).distance / exact_distance(model, x, y, t)
    assert ratio.min() >= 1 - 1e-4
    # The log barrier starts far away and comes down to a corner of the l1 ball only slowly.
    slow = name == "logbarrier" and isinstance(t.core, L1)
    assert ratio.max() <= (4.0 if slow else 1.05 if name == "carlini_wagner" else 1.02)


@each_kind
def test_boundary_comes_near_a_hyperplane(t: Threat) -> None:
    """Labels only; where the ball has kinks, a random walk does not find its corners."""
    model, x, y = hyperplanes(2)
    ratio = ATTACKS["boundary"](model, x, y, threat=t).distance / exact_distance(model, x, y, t)
    assert ratio.min() >= 1 - 1e-4
    assert ratio.max() <= (1.2 if isinstance(t.core, L2 | ThreeHalves) else 2.0)


@each
def test_the_suite_finds_the_nearest_of_several_classes(t: Threat) -> None:
    model, x, y = hyperplanes(5)
    found = attack(model, x, y, threat=t)
    ratio = found.distance / exact_distance(model, x, y, t)
    assert ratio.min() >= 1 - 1e-4
    assert ratio.max() <= 1.001
    torch.testing.assert_close(t.norm(found.adversarial - x), found.distance)


@pytest.mark.parametrize("t", [NORMS[kind] for kind in KINDS[:4]], ids=KINDS[:4])
def test_a_fixed_radius_is_broken_just_beyond_the_distance(t: Threat) -> None:
    model, x, y = hyperplanes(3)
    exact = exact_distance(model, x, y, t)
    middle = exact.median().item()
    found = attack(model, x, y, threat=t, eps=middle * 1.002)
    assert torch.equal(found.robust(middle * 1.002), exact > middle * 1.002)


def test_weights_of_one_find_the_distances_of_the_plain_norm() -> None:
    """A network with a curved boundary, and the same work in other coordinates."""
    model, x = small_network(48), torch.rand(12, *SHAPE, generator=torch.Generator().manual_seed(0))
    y = model(x).argmax(1)
    names: tuple[ThreatName, ...] = ("l2", "linf", "l1")
    for name in names:
        plain = attack(model, x, y, threat=name).distance
        same = attack(model, x, y, threat=Weighted(name, torch.ones(SHAPE))).distance
        assert (same / plain - 1).abs().max() <= 0.01


def test_walls_of_the_box_are_no_obstacle() -> None:
    """Black and white images: every step runs into a wall, and DeepFool's generic step must still get across."""
    model, x = small_network(48), torch.rand(8, *SHAPE, generator=torch.Generator().manual_seed(2)).round()
    y = model(x).argmax(1)
    for t in (NORMS[kind] for kind in KINDS):
        found = attack(model, x, y, threat=t, attacks=["deepfool"])
        best = attack(model, x, y, threat=t, attacks="standard")
        assert found.success.all()
        assert (found.distance / best.distance).median() <= 1.15


class Refusing(ThreeHalves):
    """A norm as many write it: `view(len(v), -1)` of no images is an error."""

    def norm(self, v: Tensor) -> Tensor:
        return super().norm(v.reshape(len(v), -1))

    def dual_norm(self, g: Tensor) -> Tensor:
        return super().dual_norm(g.reshape(len(g), -1))


@pytest.mark.parametrize("t", [*(NORMS[kind] for kind in KINDS), Refusing()], ids=[*KINDS, "refusing"])
def test_a_batch_without_an_adversarial_image_has_none_in_any_norm(t: Threat) -> None:
    """All misclassified, or nothing to be found: no norm is asked about no images."""
    model, x, y = hyperplanes(3)
    assert (attack(model, x, (y + 1) % 3, threat=t, attacks="quick").distance == 0).all()
    model.weight.data *= 0
    model.bias.data = torch.tensor([0.0, 1.0, 2.0])
    with pytest.warns(GradregWarning, match="gradient is zero"):
        found = attack(model, x, torch.full_like(y, 2), threat=t, attacks="quick")
    assert found.distance.isinf().all()


def test_a_norm_may_be_a_dataclass() -> None:
    """With fields to compare it has no hash, by which what is known of a norm was kept."""

    @dataclass
    class Scaled(L2):
        factor: float = 1.0

    model, x, y = hyperplanes(2)
    expected = attack(model, x, y, threat="l2", attacks="quick").distance
    torch.testing.assert_close(attack(model, x, y, threat=Scaled(), attacks="quick").distance, expected)
    out = regularized_loss(model, x, y, threat=Scaled(), eps=0.1)
    torch.testing.assert_close(out.loss, regularized_loss(model, x, y, threat="l2", eps=0.1).loss)


def test_what_does_not_support_a_norm_is_left_out_or_refused() -> None:
    model, x, y = hyperplanes(2)
    found = attack(model, x, y, threat=ThreeHalves())
    assert found.left_out == ("square",)
    assert attack(model, x, y, threat="l2", attacks="quick").left_out == ()
    with pytest.raises(ConfigError, match=r"square supports the threats l2, linf only, since .*; got three-halves-"):
        attack(model, x, y, threat=ThreeHalves(), attacks=["fmn", "square"])
    with pytest.raises(ConfigError, match=r"ddn supports the threats l2 only, since .*; got weighted-"):
        ATTACKS["ddn"](model, x, y, threat=Weighted("l2", 1.0))
    with pytest.raises(ConfigError, match=r"AutoAttack is for linf, l2, l1; got weighted-.* Use attack\(\)"):
        autoattack(model, x, y, eps=0.1, threat=Weighted("l2", 1.0))


def test_a_wrong_norm_is_refused_before_any_attack() -> None:
    class Swapped(ThreeHalves):
        def dual_norm(self, g: Tensor) -> Tensor:
            return self.norm(g)

    model, x, y = hyperplanes(2)
    with pytest.raises(ConfigError, match=r"Swapped\.ascent must return directions of norm 1"):
        attack(model, x, y, threat=Swapped())


def test_other_weights_neither_merge_nor_resume(tmp_path: object) -> None:
    model, x, y = hyperplanes(2)
    here, there = Weighted("l2", weights()), Weighted("l2", weights(seed=1))
    pools = []
    for t in (here, there, threat("l2")):
        pool = Pool(len(x))
        pool.update(attack(model, x, y, threat=t, attacks="quick"))
        pools.append(pool)
    for other in pools[1:]:
        with pytest.raises(ConfigError, match="they are not comparable"):
            pools[0].merge(other)
    path = f"{tmp_path}/pool.safetensors"
    once = attack(model, x, y, threat=here, attacks="quick", resume=path)
    assert torch.equal(
        attack(model, x, y, threat=Weighted("l2", weights()), attacks="quick", resume=path).distance, once.distance
    )
    with pytest.raises(ConfigError, match="was begun with other"):
        attack(model, x, y, threat=there, attacks="quick", resume=path)


def test_a_norm_that_changed_outside_of_its_attributes_does_not_resume(tmp_path: object) -> None:
    outside = [1.0]

    class Global(SumOfChannels):
        def norm(self, v: Tensor) -> Tensor:
            return outside[0] * super().norm(v)

        def dual_norm(self, g: Tensor) -> Tensor:
            return super().dual_norm(g) / outside[0]

        def ascent(self, g: Tensor) -> Tensor:
            return super().ascent(g) / outside[0]

        def project(self, v: Tensor, radius: float | Tensor) -> Tensor:
            return super().project(v, radius / outside[0])

        def sample(self, like: Tensor, radius: float | Tensor, generator: torch.Generator) -> Tensor:
            return super().sample(like, radius / outside[0], generator)

    model, x, y = hyperplanes(2)
    path = f"{tmp_path}/pool.safetensors"
    attack(model, x, y, threat=Global(), attacks="quick", resume=path)
    outside[0] = 2.0
    with pytest.raises(ConfigError, match="was begun with other norm"):
        attack(model, x, y, threat=Global(), attacks="quick", resume=path)
