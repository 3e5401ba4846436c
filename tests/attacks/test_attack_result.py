"""What a result promises: verified, in the box, at that distance, with its own costs; pools that keep the minimum."""

from pathlib import Path
from typing import Any

import pytest
import torch
from attack_models import Balls, images, linear_model, small_network
from torch import Tensor, nn

from gradreg.attacks import Pool, attack, boundary, fmn, pgd, polish, pooled, square
from gradreg.attacks.suite import ATTACKS, SuiteName
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError, DataError
from gradreg.norms import ThreatName, threat


class Counting(nn.Module):
    """Remembers how often each image, known by a mark in a pixel that the model does not use, was asked about."""

    def __init__(self, model: nn.Module, count: int) -> None:
        super().__init__()
        self.model, self.rows, self.back = (
            model,
            torch.zeros(count, dtype=torch.long),
            torch.zeros(count, dtype=torch.long),
        )

    def forward(self, x: Tensor) -> Tensor:
        marks = (x[:, -1].detach() * 100).round().long()
        self.rows += marks.bincount(minlength=len(self.rows))
        logits: Tensor = self.model(x[:, :-1])
        if logits.requires_grad:
            logits.register_hook(lambda gradient: self.came_back(gradient, marks))
        return logits

    def came_back(self, gradient: Tensor, marks: Tensor) -> None:
        self.back += marks.bincount(minlength=len(self.back))


@pytest.mark.parametrize("eps", [None, 0.1])
@pytest.mark.parametrize("suite", ["quick", "standard"])
def test_costs_are_counted_for_each_image(suite: SuiteName, eps: float | None) -> None:
    """Against a model that counts by itself. The marked pixel has no gradient, so white-box attacks leave it alone."""
    x = torch.cat([images(8, 20, "middle"), torch.arange(8)[:, None] / 100], 1)
    model = Counting(small_network(), 8).eval()
    y = model.model(x[:, :-1]).argmax(1)
    y[0] = (y[0] + 1) % 4
    names = ["deepfool", "fmn", "apgd", "polish"] if suite == "standard" else suite
    result = attack(model, x, y, attacks=names, eps=eps)
    assert torch.equal(result.forwards, model.rows)
    assert torch.equal(result.backwards, model.back)
    assert result.forwards[0] == 2


@pytest.mark.parametrize(
    ("suite", "most", "eps"),
    [("quick", 60, None), ("quick", 60, 1e-4), ("standard", 1000, None), ("standard", 2000, 1e-4)],
)
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_suites_keep_to_their_costs(suite: SuiteName, most: int, eps: float | None, norm: ThreatName) -> None:
    model, x = small_network(), images(4, 20, "middle")
    result = attack(model, x, model(x).argmax(1), threat=norm, attacks=suite, eps=eps)
    assert result.propagations.max() <= most


@pytest.mark.parametrize("budget", [10, 101, 500])
def test_a_budget_is_kept(budget: int) -> None:
    model, x = small_network(), images(4, 20, "middle")
    result = attack(model, x, model(x).argmax(1), budget=budget)
    assert result.propagations.max() <= budget
    assert result.propagations.min() >= budget - 3


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in ("ddn", "polish")])
def test_what_is_returned_holds(name: str, norm: ThreatName) -> None:
    """In the box, at its distance, and misclassified when asked alone."""
    model, x = small_network(), images(6, 20, "walls")
    y = model(x).argmax(1)
    y[2] = (y[2] + 1) % 4
    options: dict[str, Any] = {"steps": 100} if name in ("boundary", "square") else {}
    result = ATTACKS[name](model, x, y, threat=norm, **options)
    assert result.distance[2] == 0
    assert result.winner[2] == "clean"
    assert torch.equal(result.adversarial[2], x[2])
    assert 0 <= result.adversarial.min() <= result.adversarial.max() <= 1
    torch.testing.assert_close(threat(norm).norm(result.adversarial - x), result.distance)
    for image, label, won in zip(result.adversarial, y, result.winner, strict=True):
        logits = model(image[None])[0]
        assert won in (name, "clean")
        assert logits.argmax() != label


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "polish"])
def test_an_image_without_a_way_out_stops_nobody(name: str) -> None:
    """Another class in a small ball, around which the model is flat: one image is on its slope, the other far off."""
    centre = torch.tensor([0.3, 0.7]).repeat(6)

    def model(x: Tensor) -> Tensor:
        inside = torch.relu(0.5 - (x - centre).norm(dim=1)) - 0.3
        return torch.stack([torch.zeros_like(inside), inside], 1)

    x = torch.stack([torch.tensor([1.0, 0.0, 0.0]).repeat(4), centre - 0.3 / 12**0.5])
    start = torch.stack([x[0], centre]) if name in ("boundary", "square") else None
    result = ATTACKS[name](model, x, torch.zeros(2, dtype=torch.long), start=start)
    assert result.distance[0] == torch.inf
    assert result.winner[0] == ""
    assert torch.equal(result.adversarial[0], x[0])
    assert 0.1 * (1 - 1e-5) <= result.distance[1] < 0.15


@pytest.mark.slow
def test_radii_in_one_call_agree_with_one_by_one() -> None:
    model, x = small_network(), images(10, 20, "middle")
    y = model(x).argmax(1)
    radii = (0.05, 0.15)
    together = attack(model, x, y, eps=radii)
    minimal = attack(model, x, y)
    for eps in radii:
        alone = attack(model, x, y, eps=eps)
        assert torch.equal(together.robust(eps), alone.robust(eps))
        assert torch.equal(together.robust(eps), minimal.robust(eps))
    # `alone` is that of the larger radius: images that remain robust to it are not attacked again within the smaller.
    assert together.robust(0.15).all()
    assert (together.propagations <= alone.propagations + 2).all()


def test_finished_images_are_not_asked_again() -> None:
    """At a radius that a first step reaches, an image costs a handful of propagations."""
    model, x = linear_model(20, classes=2), images(10, 20, "middle")
    result = attack(model, x, model(x).argmax(1), eps=1.0)
    assert result.propagations.max() < 12


def test_polish_never_lengthens() -> None:
    model, x = small_network(), images(12, 20, "middle")
    y = model(x).argmax(1)
    rough = square(model, x, y, steps=40)
    smooth = polish(model, x, y, start=rough.adversarial)
    assert (smooth.distance <= rough.distance).all()
    assert (smooth.distance < rough.distance).any()
    assert set(smooth.winner) == {"start"}
    assert (smooth.backwards == 0).all()


@pytest.mark.parametrize("given", [torch.float64, torch.float16])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_start_may_be_of_another_float_type(kind: torch.dtype, given: torch.dtype) -> None:
    model, x = small_network(), images(4, 20, "middle")
    y = model(x).argmax(1)
    start = torch.where(torch.rand_like(x) < 0.5, 0.0, 1.0)
    found = polish(model, x.to(kind), y, start=start.to(given).requires_grad_())
    expected = polish(model, x.to(kind), y, start=start.to(kind))
    assert torch.equal(found.distance, expected.distance)
    assert found.distance.dtype == kind
    assert not found.adversarial.requires_grad


def test_boundary_starts_where_it_is_told() -> None:
    """A warm start is never made worse, and needs no search for a start."""
    model, x = small_network(), images(6, 20, "middle")
    y = model(x).argmax(1)
    near = fmn(model, x, y)
    result = boundary(model, x, y, start=near.adversarial, steps=22)
    assert (result.distance <= near.distance * (1 + 1e-5)).all()
    # A turn is 10 probes, 3 angles and 3 halvings; the 6 that are left are too few for another.
    assert result.forwards.max() == 2 + 1 + 16 + 1
    assert result.backwards.max() == 0


def test_who_gains_next_to_nothing_is_not_the_winner() -> None:
    """Random steps shorten what a gradient attack found by a hair, which is no sign of masked gradients."""
    model, x = small_network(), images(6, 20, "middle")
    y = model(x).argmax(1)
    near = fmn(model, x, y)
    delta = near.adversarial - x
    same = boundary(model, x, y, start=x + 1.0005 * delta, steps=200)
    assert (same.distance < 1.0004 * near.distance).any()
    assert set(same.winner) == {"start"}
    found = boundary(model, x, y, start=(x + 1.05 * delta).clamp(0, 1), steps=200)
    assert "boundary" in found.winner
    shortened = found.distance < 0.999 * (x + 1.05 * delta).clamp(0, 1).sub(x).flatten(1).norm(dim=1)
    assert [name == "boundary" for name in found.winner] == shortened.tolist()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_quantized_images_are_on_the_grid(norm: ThreatName) -> None:
    model, x = small_network(), (images(8, 20, "middle") * 255).round() / 255
    y = model(x).argmax(1)
    result = attack(model, x, y, threat=norm, attacks="quick", quantize=8)
    assert result.success.all()
    torch.testing.assert_close(result.adversarial * 255, (result.adversarial * 255).round(), atol=1e-4, rtol=0)
    assert (model(((result.adversarial * 255).round().to(torch.uint8)).float() / 255).argmax(1) != y).all()
    free = attack(model, x, y, threat=norm, attacks="quick")
    assert (result.distance / free.distance).median() < 1.1


def test_pool_keeps_the_minimum_and_its_finder(tmp_path: Path) -> None:
    model, x = small_network(), images(10, 20, "middle")
    y = model(x).argmax(1)
    results = [pgd(model, x, y, rounds=3), fmn(model, x, y, steps=20)]
    best = pooled(results)
    assert torch.equal(best.distance, torch.minimum(results[0].distance, results[1].distance))
    assert set(best.winner) <= {"pgd", "fmn"}
    assert torch.equal(best.forwards, results[0].forwards + results[1].forwards)
    pool = Pool(10)
    pool.update(best)
    pool.save(tmp_path / "pool.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["pool.safetensors"]
    again = Pool.load(tmp_path / "pool.safetensors").result
    assert torch.equal(again.distance, best.distance)
    assert torch.equal(again.adversarial, best.adversarial)
    assert (again.winner, again.threat) == (best.winner, "l2")


def test_pools_refuse_what_is_not_comparable(tmp_path: Path) -> None:
    model, x = small_network(), images(4, 20, "middle")
    y = model(x).argmax(1)
    pool = Pool(4)
    with pytest.raises(DataError, match="empty"):
        _ = pool.result
    pool.update(fmn(model, x, y, steps=5))
    with pytest.raises(ConfigError, match="not comparable"):
        pool.update(fmn(model, x, y, steps=5, threat="linf"))
    with pytest.raises(DataError, match="2 images cannot be entered at 4"):
        pool.update(fmn(model, x[:2], y[:2], steps=5))
    with pytest.raises(ConfigError, match="do not merge"):
        pool.merge(Pool(4, {"model": "another"}))


def test_an_interrupted_attack_continues(tmp_path: Path) -> None:
    """The second call attacks only what the first had not finished, and the answer is that of one call."""
    x = images(12, 20, "middle")
    network = small_network()
    y = network(x).argmax(1)
    asked = 0

    def failing(batch: Tensor) -> Tensor:
        nonlocal asked
        asked += 1
        if asked > 120:
            raise KeyboardInterrupt
        return network(batch)  # type: ignore[no-any-return]

    def counted(batch: Tensor) -> Tensor:
        nonlocal asked
        asked += len(batch)
        return network(batch)  # type: ignore[no-any-return]

    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        attack(failing, x, y, attacks="quick", batch_size=3, resume=path)
    done = len(Pool.load(path)) - len(Pool.load(path).missing)
    assert 0 < done < 12
    asked = 0
    seen: list[tuple[int, int]] = []
    result = attack(counted, x, y, attacks="quick", batch_size=3, resume=path, progress=lambda *at: seen.append(at))
    # A bare function is known by its answers to a few images, which are asked for twice besides.
    assert asked == int(result.forwards[done:].sum()) + 8
    assert seen[-1] == (12, 12)
    asked = 0
    assert attack(counted, x, y, attacks="quick", batch_size=3, resume=path).winner == result.winner
    assert asked == 8
    torch.testing.assert_close(result.distance, attack(network, x, y, attacks="quick").distance, atol=1e-5, rtol=0)
    with pytest.raises(ConfigError, match="begun with other settings, other weights; continue"):
        attack(network, x, y, attacks="quick", seed=1, resume=path)


def test_pixels_of_another_box_are_resumed_too(tmp_path: Path) -> None:
    x, y, network = 255 * images(4, 20, "middle"), torch.zeros(4, dtype=torch.int64), small_network()
    model = Classifier(lambda pixels: network(pixels / 255), box=(0, 255))
    whole = attack(model, x, y, threat="l2", attacks="quick")
    torch.testing.assert_close(
        attack(model, x, y, threat="l2", attacks="quick", resume=tmp_path / "pool").distance, whole.distance
    )


def test_balls_are_not_reached_from_a_wrong_norm() -> None:
    """The distance of a result is in the norm that it names."""
    centres = torch.full((1, 9), 0.5)
    model, x = Balls(centres, torch.tensor([0.3])).eval(), torch.full((2, 9), 0.3)
    y = torch.zeros(2, dtype=torch.long)
    distances: dict[ThreatName, float] = {"l2": 0.3, "linf": 0.1, "l1": 0.9}
    for norm, exact in distances.items():
        found = attack(model, x, y, threat=norm).distance
        assert (found <= 1.001 * exact).all()


def test_no_images_have_no_accuracy() -> None:
    model, x = linear_model(20, classes=4), images(2, 20, "middle")
    nobody = fmn(model, x, model(x).argmax(1), steps=2).select(torch.tensor([], dtype=torch.int64))
    assert str(nobody) == "AttackResult: 0 images, l2"
    for ask in (nobody.plot, lambda: nobody.robust_accuracy(0.1)):
        with pytest.raises(DataError, match="at least one image"):
            ask()
