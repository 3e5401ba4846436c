"""A verdict at a radius leaves images that are far outside of it: rightly, cheaply, and with what that can miss."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from attack_models import Linear, images, linear_model
from torch import Tensor, nn

from gradreg.attacks import AttackOptions, Pool, attack
from gradreg.attacks.band import BANDS, Band
from gradreg.attacks.run import Step
from gradreg.attacks.suite import FIXED
from gradreg.errors import ConfigError, GradregWarning
from gradreg.norms import ThreatName
from gradreg.norms import threat as named

EPS = 0.02
FIRST = 2 * sum(options["steps"] for attack, options in FIXED["standard"] if attack.name == "fmn")


def at_distances(ratios: list[float], threat: ThreatName) -> tuple[nn.Module, Tensor, Tensor]:
    """Two classes and images at so many radii from the plane between them, inside the box."""
    normal = torch.randn(24, generator=torch.Generator().manual_seed(2))
    norm = named(threat)
    away = norm.ascent(normal[None])
    step = away / (away * normal).sum() * norm.dual_norm(normal[None])
    x = 0.5 - EPS * torch.tensor(ratios)[:, None] * step
    model = Linear(torch.stack([-normal, normal]) / 2, torch.stack([normal.sum(), -normal.sum()]) / 4).eval()
    return model, x, torch.zeros(len(ratios), dtype=torch.int64)


@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_verdicts_beside_a_plane(threat: ThreatName) -> None:
    """Near the radius on both sides the whole suite runs; at five radii only what measures the distance."""
    ratios = [0.9, 0.999, 1.001, 1.02, 2.0, 5.0]
    model, x, y = at_distances(ratios, threat)
    found = attack(model, x, y, threat=threat, eps=EPS)
    assert found.robust(EPS).tolist() == [ratio > 1 for ratio in ratios]
    assert found.left_early is not None
    assert found.left_early.tolist() == [ratio > BANDS[threat].factor for ratio in ratios]
    far, near = found.propagations[-2:], found.propagations[2:4]
    # Two forwards check the model, a forward and a backward rank the rivals, and one verifies.
    assert far.tolist() == [FIRST + 5] * 2
    assert int(near.min()) > 4 * FIRST


@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_thorough_is_the_whole_suite_in_its_order(threat: ThreatName) -> None:
    whole = AttackOptions(threat=threat, eps=EPS, thorough=True).plan()
    assert whole == [Step(attack, options) for attack, options in FIXED["standard"]]
    assert "beyond" not in repr(whole)


def test_in_the_band_nothing_of_the_whole_suite_is_missing() -> None:
    """Distances first, then LogBarrier from what they found, then the rest of the suite in its order."""
    plan, whole = (AttackOptions(eps=EPS, thorough=thorough).plan() for thorough in (False, True))
    assert [step.attack.name for step in plan[:5]] == ["fmn"] * 4 + ["logbarrier"]
    assert [step.beyond for step in plan] == [*[math.inf] * 3, BANDS["l2"].factor, *[math.inf] * (len(plan) - 4)]
    assert list(map(repr, plan[:4])) == [repr(step) for step in whole if step.attack.name == "fmn"]
    assert plan[5:] == [step for step in whole if step.attack.name not in ("fmn", "logbarrier")]
    assert plan[4] == whole[-1]


def test_thorough_leaves_nobody() -> None:
    model, x, y = at_distances([5.0], "l2")
    found = attack(model, x, y, eps=EPS, thorough=True)
    assert found.left_early is None
    assert found.band is None
    assert int(found.propagations[0]) > 4 * FIRST


def test_an_image_is_left_whatever_its_batch() -> None:
    """Verdict, distance and cost alone are those in a batch; the first image breaks at one radius only."""
    model, x, y = at_distances([0.9, 3.0], "l2")
    model, x, radii = model.double(), x.double(), (EPS / 4, EPS)
    both = attack(model, x, y, eps=radii)
    assert [both.robust(radius).tolist() for radius in radii] == [[True, True], [False, True]]
    assert both.left_early is not None
    assert both.left_early.tolist() == [True, True]
    for i in range(2):
        alone = attack(model, x[i : i + 1], y[i : i + 1], eps=radii)
        assert alone.left_early is not None
        assert alone.left_early.tolist() == [True]
        assert torch.equal(alone.propagations, both.propagations[i : i + 1])
        torch.testing.assert_close(alone.distance, both.distance[i : i + 1], atol=1e-5, rtol=0)


class Quantised(nn.Module):
    """Gradients that are exactly zero: the attacks that measure distances find nothing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.model((32 * x).round() / 32)
        return out


@pytest.mark.parametrize("started", [False, True])
def test_an_image_that_gradients_do_not_measure_is_never_left(started: bool) -> None:
    """Nor if somebody else found an adversarial image far away: the first attacks did not."""
    model, x = Quantised(linear_model(30, classes=3)).eval(), images(1, 30, "middle")
    y = model(x).argmax(1)
    corners = (torch.rand(200, 30, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    start = corners[model(corners).argmax(1) != y][:1] if started else None
    with pytest.warns(GradregWarning, match="gradient is zero"):
        found = attack(model, x, y, threat="linf", eps=0.01, budget=FIRST + 150, start=start)
    assert found.left_early is not None
    assert not found.left_early.any()
    assert int(found.propagations.min()) > FIRST + 100


@pytest.mark.parametrize(
    "elsewhere",
    [{"topk": 2}, {"threat": "l1"}, {"precision": "bf16"}, {"attacks": "quick"}, {"attacks": ["fmn"]}, {"eps": None}],
)
def test_the_band_is_for_what_it_was_learned_on(elsewhere: dict[str, object]) -> None:
    assert AttackOptions(eps=0.1).band == BANDS["l2"]
    options = AttackOptions(**{"eps": 0.1, **elsewhere})  # type: ignore[arg-type]
    assert options.band is None
    assert all(step.beyond == float("inf") for step in options.plan())


def test_a_budget_is_not_a_band() -> None:
    """What the budget ended was not left early."""
    model, x, y = at_distances([5.0], "l2")
    found = attack(model, x, y, eps=EPS, budget=60)
    assert found.left_early is not None
    assert not found.left_early.any()


def test_interrupted_work_keeps_what_was_left_early(tmp_path: Path) -> None:
    """The file says whom the band left, and a file of the whole suite is not continued with a band."""
    model, x, y = at_distances([0.9, 4.0, 5.0, 6.0], "l2")
    path = tmp_path / "run.safetensors"
    once = attack(model, x, y, eps=EPS, batch_size=2)
    resumed = [attack(model, x, y, eps=EPS, batch_size=2, resume=path) for _ in range(2)]
    for found in resumed:
        assert found.left_early is not None
        assert once.left_early is not None
        assert torch.equal(found.left_early, once.left_early)
        assert torch.equal(found.propagations, once.propagations)
        assert found.band == BANDS["l2"]
    with pytest.raises(ConfigError, match=r"was begun with other .*band"):
        attack(model, x, y, eps=EPS, resume=path, thorough=True)


def test_a_pool_says_who_was_left_early() -> None:
    """Until somebody else gives the image all attacks; a quick suite does not."""
    model, x, y = at_distances([5.0, 6.0, 7.0], "l2")
    early = attack(model, x, y, eps=EPS)
    assert early.left_early is not None
    pool = Pool(3)
    pool.update(attack(model, x, y, eps=EPS, attacks="quick"))
    pool.update(early.select(torch.tensor([0, 1])), torch.tensor([0, 1]))
    assert pool.result.left_early is not None
    assert pool.result.left_early.tolist() == [True, True, False]
    pool.update(attack(model, x, y, eps=EPS, attacks="quick"))
    assert pool.result.left_early.tolist() == [True, True, False]
    pool.update(replace(early, left_early=torch.tensor([True, False, True])))
    assert pool.result.left_early.tolist() == [True, False, False]


def test_a_result_says_what_it_can_have_missed() -> None:
    model, x, y = at_distances([5.0, 0.5], "linf")
    found = attack(model, x, y, threat="linf", eps=EPS)
    band = BANDS["linf"]
    assert f"1 of 2 (50.0 %), beyond {band.factor:g} radii; wrong for at most" in str(found)
    assert found.records().facts["band"]["limit"] == band.limit
    assert found.select(torch.tensor([1])).left_early.tolist() == [False]  # type: ignore[union-attr]
    assert str(Band(1.25, 3000, 0.001)) == (
        "beyond 1.25 radii; wrong for at most 0.10 % of images (95 % limit, learned on 3,000 others)"
    )
