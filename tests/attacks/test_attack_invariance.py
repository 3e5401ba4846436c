"""What must not change an answer: the batch, its order, the scale and shift of logits, the global random state."""

import math
from typing import Any

import pytest
import torch
from attack_models import Linear, images, linear_model, small_network
from torch import Tensor, nn

from gradreg.attacks import AttackResult, Pool, apgd, attack, square
from gradreg.attacks.looking import Schedule
from gradreg.attacks.suite import ATTACKS, SuiteName
from gradreg.norms import ThreatName
from gradreg.randomness import Streams

MARGIN_BASED = ("deepfool", "ddn", "fmn", "apgd", "carlini_wagner", "logbarrier", "boundary")
SHORT: dict[str, dict[str, Any]] = {
    "pgd": {"rounds": 4},
    "apgd": {"rounds": 4},
    "fmn": {"steps": 40},
    "logbarrier": {"inner": 4},
    "boundary": {"steps": 60},
    "carlini_wagner": {"steps": 20, "rounds": 3},
    "square": {"steps": 60},
}


def run(name: str, model: nn.Module, x: Tensor, y: Tensor, threat: ThreatName) -> AttackResult:
    return ATTACKS[name](model, x, y, threat=threat, **SHORT.get(name, {}))


@pytest.mark.parametrize("threat", ["l2", "linf"])
@pytest.mark.parametrize(
    "name", ["deepfool", "fmn", "pgd", "apgd", "carlini_wagner", "boundary", "logbarrier", "square"]
)
def test_an_image_does_not_feel_its_batch(name: str, threat: ThreatName) -> None:
    """Alone, by seven, all twelve at once and shuffled."""
    model = small_network(dtype=torch.float64)
    x = images(12, 20, "middle").double()
    y = model(x).argmax(1)
    y[3] = (y[3] + 1) % 4  # misclassified, so finished before it starts
    whole = run(name, model, x, y, threat).distance
    for rows in (slice(0, 1), slice(3, 4), slice(5, 6), slice(5, 12)):
        part = run(name, model, x[rows], y[rows], threat).distance
        torch.testing.assert_close(part, whole[rows], atol=1e-5, rtol=0)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(run(name, model, x[order], y[order], threat).distance, whole[order], atol=1e-5, rtol=0)


@pytest.mark.parametrize("suite", ["quick", pytest.param("standard", marks=pytest.mark.slow)])
def test_a_suite_does_not_feel_the_batch_size(suite: SuiteName) -> None:
    """Batches of 1, 7 and 64, in single precision."""
    model, x = linear_model(20, classes=4), images(64, 20, "middle")
    y = model(x).argmax(1)
    whole = attack(model, x, y, attacks=suite, batch_size=64)
    for rows, size in ((slice(0, 2), 1), (slice(0, 14), 7)):
        parts = attack(model, x[rows], y[rows], attacks=suite, batch_size=size)
        torch.testing.assert_close(parts.distance, whole.distance[rows], atol=1e-5, rtol=0)
        assert (parts.propagations - whole.propagations[rows]).abs().max() <= 20


@pytest.mark.parametrize("eps", [None, (0.05, 0.15)])
def test_looking_rarely_changes_costs_only(monkeypatch: pytest.MonkeyPatch, eps: tuple[float, ...] | None) -> None:
    """On an accelerator finished images are left out every eighth call; distances are those of every call."""
    model, x = small_network(dtype=torch.float64), images(9, 20, "middle").double()
    y = model(x).argmax(1)
    names = ["fmn", "apgd", "logbarrier"] if eps is None else "standard"
    often = attack(model, x, y, attacks=names, eps=eps)
    monkeypatch.setattr(Schedule, "of", lambda device, evaluations: Schedule(False, evaluations))
    rarely = attack(model, x, y, attacks=names, eps=eps)
    if eps is None:
        torch.testing.assert_close(rarely.distance, often.distance, atol=1e-5, rtol=0)
    else:
        assert all(torch.equal(rarely.robust(radius), often.robust(radius)) for radius in eps)
    assert rarely.propagations.sum() >= often.propagations.sum()


def test_radii_do_not_feel_the_batch() -> None:
    """Images leave and come back at other radii; what is remembered of them is their own."""
    model, x = small_network(dtype=torch.float64), images(6, 20, "middle").double()
    y = model(x).argmax(1)
    whole = attack(model, x, y, eps=(0.05, 0.15))
    for i in (0, 3):
        alone = attack(model, x[i : i + 1], y[i : i + 1], eps=(0.05, 0.15))
        torch.testing.assert_close(alone.distance, whole.distance[i : i + 1], atol=1e-5, rtol=0)
        assert torch.equal(alone.propagations, whole.propagations[i : i + 1])


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 100.0), (1.0, -100.0), (0.01, 0.0), (100.0, 0.0)])
@pytest.mark.parametrize("name", MARGIN_BASED)
def test_shifted_and_scaled_logits(name: str, scale: float, shift: float) -> None:
    """The same decisions, so the same distances; a −100 shift is what breaks masking by multiplication."""
    model = linear_model(20, classes=2).double()
    other = Linear(scale * model.weight.detach(), scale * model.bias.detach() + shift).eval()
    x = images(6, 20, "middle").double()
    y = model(x).argmax(1)
    torch.testing.assert_close(
        run(name, other, x, y, "l2").distance, run(name, model, x, y, "l2").distance, rtol=5e-3, atol=0
    )


def test_seeds_matter_and_the_global_state_does_not() -> None:
    """Results repeat with the seed, whatever was drawn in between, and nothing is drawn from the global stream."""
    model, x = small_network(), images(4, 20, "middle")
    y = model(x).argmax(1)
    before = torch.get_rng_state()
    first = square(model, x, y, steps=30)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(7)
    assert torch.equal(square(model, x, y, steps=30).distance, first.distance)
    assert not torch.equal(square(model, x, y, steps=30, seed=1).distance, first.distance)


@pytest.mark.parametrize("threat", ["l2", "linf"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (70, 2, 2)])
def test_volumes_and_many_channels_get_square_patches(shape: tuple[int, ...], threat: str) -> None:
    """Clips of C channels and D frames and images of more than 64 channels ended in a traceback of broadcasting."""
    pixels = math.prod(shape)
    model, x = linear_model(pixels, 4), images(4, pixels, "middle").view(-1, *shape)
    y = model(x).argmax(1)
    found = square(model, x, y, threat=threat, steps=40)
    assert (found.distance.isfinite() & (found.distance > 0)).all()
    alone = torch.cat([square(model, x[i : i + 1], y[i : i + 1], threat=threat, steps=40).distance for i in range(4)])
    torch.testing.assert_close(found.distance, alone, rtol=1e-5, atol=0)


def test_streams_are_uniform_normal_and_apart() -> None:
    """Moments, and no correlation between images, draws or salts."""
    x = torch.rand(3, 20_000, generator=torch.Generator().manual_seed(0))
    streams = Streams(0, x, torch.zeros(3, dtype=torch.long))
    uniform, normal = streams.uniform(x, 1), streams.normal(x, 2)
    assert 0 <= uniform.min() <= uniform.max() < 1
    torch.testing.assert_close(uniform.mean(1), torch.full((3,), 0.5), atol=0.01, rtol=0)
    torch.testing.assert_close(normal.mean(1), torch.zeros(3), atol=0.03, rtol=0)
    torch.testing.assert_close(normal.std(1), torch.ones(3), atol=0.03, rtol=0)
    others = torch.stack([*normal, streams.normal(x, 3)[0], streams.normal(x, 2, 1)[0], normal[0].roll(1)])
    assert (torch.corrcoef(others) - torch.eye(6)).abs().max() < 0.03
    single = Streams(0, x[1:2], torch.zeros(1, dtype=torch.long))
    assert torch.equal(single.uniform(x[1:2], 1), uniform[1:2])
    some = torch.tensor([2, 0])
    assert torch.equal(streams.uniform(x[some], 1, rows=some), uniform[some])


@pytest.mark.parametrize("threat", ["l2", "linf"])
@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 4), (1, 5, 3), (6,)])
def test_grey_constant_and_tiny_images(shape: tuple[int, ...], level: float, threat: ThreatName) -> None:
    """Constant images in the middle and at the corners of the box, down to one pixel."""
    pixels = int(torch.tensor(shape).prod())
    weight = torch.stack([torch.zeros(pixels), torch.ones(pixels) * (1.0 if level < 1 else -1.0)])
    other = 0.8 if level < 1 else 0.2
    model = Linear(weight, torch.tensor([0.0, -other * weight[1].sum()])).eval()
    x = torch.full((2, *shape), level)
    y = torch.zeros(2, dtype=torch.long)
    exact = abs(other - level) * (pixels**0.5 if threat == "l2" else 1)
    result = attack(model, x, y, threat=threat, attacks="quick")
    torch.testing.assert_close(result.distance, torch.full((2,), exact), rtol=1e-3, atol=0)
    assert result.adversarial.shape == x.shape


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_few_and_many_classes(classes: int) -> None:
    model, x = linear_model(16, classes), images(3, 16, "middle")
    y = model(x).argmax(1)
    threats: tuple[ThreatName, ...] = ("l2", "linf")
    for threat in threats:
        result = apgd(model, x, y, threat=threat, rounds=2, losses=("dlr", "t3"))
        assert result.success.all()
        assert (model(result.adversarial).argmax(1) != y).all()


def test_double_precision_stays_double() -> None:
    model, x = small_network(dtype=torch.float64), images(3, 20, "middle").double()
    result = attack(model, x, model(x).argmax(1), attacks="quick")
    assert result.distance.dtype == result.adversarial.dtype == torch.float64
    torch.testing.assert_close((result.adversarial - x).norm(dim=1), result.distance, rtol=1e-12, atol=0)


def test_shards_give_the_answer_of_one_process(tmp_path: object) -> None:
    """Every other image each, pooled, is the whole."""
    model, x = small_network(dtype=torch.float64), images(10, 20, "middle").double()
    y = model(x).argmax(1)
    whole = attack(model, x, y, attacks="quick")
    pool = Pool(10)
    for rank in range(2):
        rows = torch.arange(rank, 10, 2)
        shard = Pool(10)
        shard.update(attack(model, x[rows], y[rows], attacks="quick"), rows)
        pool.merge(shard)
    torch.testing.assert_close(pool.result.distance, whole.distance, atol=1e-5, rtol=0)
    assert pool.result.winner == whole.winner


@pytest.mark.parametrize("attacks", [["boundary"], ["boundary", "square"]])
@pytest.mark.parametrize("budget", [60, 100, 150])
def test_a_budget_ends_an_image_whatever_others_have_left(attacks: list[str], budget: int) -> None:
    """A walk that cannot afford its next probes is over, in a batch as alone."""
    x = images(7, 20, "middle")
    x[3:] = x[3:] * 2 - 0.5  # some are far from any boundary, and spend more on a start
    model = linear_model(20, classes=4)
    y = model(x).argmax(1)
    whole = attack(model, x, y, attacks=attacks, budget=budget)
    for i in range(len(x)):
        alone = attack(model, x[i : i + 1], y[i : i + 1], attacks=attacks, budget=budget)
        torch.testing.assert_close(alone.distance, whole.distance[i : i + 1], atol=1e-5, rtol=0)
        assert torch.equal(alone.propagations, whole.propagations[i : i + 1])
