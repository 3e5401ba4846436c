"""Models for which the exact distance is known."""

import pytest
import torch
from attack_models import Balls, exact_distance, images, linear_model

from gradreg.attacks import attack
from gradreg.attacks.suite import ATTACKS
from gradreg.norms import ThreatName
from gradreg.norms import threat as named

MINIMAL = ("deepfool", "ddn", "fmn", "pgd", "apgd", "carlini_wagner", "logbarrier")
THREATS: tuple[ThreatName, ...] = ("l2", "linf", "l1")


def pairs(names: tuple[str, ...]) -> list[tuple[str, ThreatName]]:
    return [(name, threat) for name in names for threat in THREATS if ATTACKS[name].supports(named(threat))]


@pytest.mark.parametrize("where", ["middle", "walls"])
@pytest.mark.parametrize(("name", "threat"), pairs(MINIMAL))
def test_distance_to_a_hyperplane(name: str, threat: ThreatName, where: str) -> None:
    """Two classes; at the walls of the box the nearest image is not along the normal."""
    model, x = linear_model(30, classes=2), images(8, 30, where)
    y = model(x).argmax(1)
    exact = exact_distance(model, x, y, threat)
    ratio = ATTACKS[name](model, x, y, threat=threat).distance / exact
    # The corners of the l1 ball are reached slowly by projections.
    assert ratio.max() <= (1.02 if threat != "l1" or name in ("deepfool", "fmn") else 1.12)
    assert ratio.min() >= 1 - 1e-5


@pytest.mark.parametrize("where", ["middle", "walls"])
@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_boundary_reaches_a_hyperplane(threat: ThreatName, where: str) -> None:
    """Labels only."""
    model, x = linear_model(30, classes=2), images(8, 30, where)
    y = model(x).argmax(1)
    ratio = ATTACKS["boundary"](model, x, y, threat=threat).distance / exact_distance(model, x, y, threat)
    assert ratio.min() >= 1 - 1e-5
    assert ratio.max() <= 1.1


@pytest.mark.parametrize("where", ["middle", "walls"])
@pytest.mark.parametrize("threat", THREATS)
def test_the_suite_finds_the_nearest_of_several_classes(threat: ThreatName, where: str) -> None:
    """The class of the second highest score is not always the nearest one."""
    model, x = linear_model(30, classes=6), images(16, 30, where)
    y = model(x).argmax(1)
    ratio = attack(model, x, y, threat=threat).distance / exact_distance(model, x, y, threat)
    assert ratio.max() <= 1.001
    assert ratio.min() >= 1 - 1e-5


@pytest.mark.parametrize("name", [*MINIMAL, "boundary"])
def test_distance_to_a_ball(name: str) -> None:
    """A curved boundary: the nearest point of a ball of another class is on the line to its centre."""
    centres = torch.full((1, 20), 0.5)
    model, x = Balls(centres, torch.tensor([0.4])).eval(), images(10, 20, "middle") * 0.3
    y = torch.zeros(10, dtype=torch.long)
    exact = (x - centres).norm(dim=1) - 0.4
    ratio = ATTACKS[name](model, x, y).distance / exact
    assert ratio.min() >= 1 - 1e-5
    assert ratio.max() <= (1.1 if name == "boundary" else 1.02)


@pytest.mark.parametrize("name", ["deepfool", "ddn", "fmn", "apgd", "carlini_wagner", "logbarrier"])
def test_out_of_a_ball(name: str) -> None:
    """From inside: the boundary curves towards the image, and the way out is away from the centre."""
    centres = torch.full((1, 20), 0.5)
    model = Balls(centres, torch.tensor([0.6])).eval()
    x = centres + 0.02 * torch.randn(10, 20, generator=torch.Generator().manual_seed(0))
    y = torch.ones(10, dtype=torch.long)
    exact = 0.6 - (x - centres).norm(dim=1)
    ratio = ATTACKS[name](model, x, y).distance / exact
    assert ratio.min() >= 1 - 1e-5
    assert ratio.max() <= 1.02


def test_the_nearer_of_two_regions() -> None:
    """A large region that scores higher, and a small one that is nearer."""
    centres = torch.stack([torch.full((16,), 0.9), torch.full((16,), 0.2)])
    model = Balls(centres, torch.tensor([0.9, 0.15])).eval()
    x = torch.full((5, 16), 0.4) + 0.01 * torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(5, dtype=torch.long)
    exact = ((x[:, None] - centres).norm(dim=2) - torch.tensor([0.9, 0.15])).amin(1)
    found = attack(model, x, y)
    assert (found.distance / exact).max() <= 1.001
    assert (found.distance / exact).min() >= 1 - 1e-5


def test_topk_is_the_distance_to_the_kth_rival() -> None:
    """Top-2 on a linear model of three classes: both rivals must be ahead, a corner of two half-spaces."""
    weight_free = linear_model(12, classes=3, seed=3)
    x = images(8, 12, "middle")
    y = weight_free(x).argmax(1)
    once, twice = attack(weight_free, x, y), attack(weight_free, x, y, topk=2)
    logits = weight_free(twice.adversarial)
    assert (logits.argsort(1)[:, 0] == y).all()
    assert (twice.distance > once.distance).all()
    normal = weight_free.weight.detach()
    for image, label, distance in zip(x, y.tolist(), twice.distance.tolist(), strict=True):
        rivals = [i for i in range(3) if i != label]
        slopes = normal[rivals] - normal[label]
        need = -(weight_free(image[None])[0, rivals] - weight_free(image[None])[0, label]).detach()
        both = slopes.T @ torch.linalg.solve(slopes @ slopes.T, need)
        singles = [s * n / s.square().sum() for s, n in zip(slopes, need, strict=True)]
        feasible = [d.norm() for d in (both, *singles) if bool((slopes @ d >= need - 1e-5).all())]
        assert distance <= 1.02 * float(min(feasible))


@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_a_quick_attack_is_exact_next_to_the_boundary(threat: ThreatName) -> None:
    """A soft margin looks for the boundary where the sum over ten classes has it: far off, from this near."""
    model = linear_model(48, classes=10, seed=3)
    x = images(30, 48, "middle")
    y = model(x).argmax(1)
    near = x + 0.999 * (attack(model, x, y, threat=threat).adversarial - x)
    exact = exact_distance(model, near, y, threat)
    assert float(exact.max()) < 1e-3
    assert float((attack(model, near, y, threat=threat, attacks="quick").distance / exact).max()) <= 1.02
