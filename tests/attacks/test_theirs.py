"""Adversarial images of anybody's attack: taken if they hold, at their distance; and AutoAttack by its name."""

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from attack_models import exact_distance, images, linear_model, small_network
from torch import Tensor

from evaluation_toys import linear, part
from gradreg.attacks import Pool, attack, fmn
from gradreg.errors import ConfigError, DataError


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> type:
    monkeypatch.syspath_prepend("tests/evaluation")
    from toy_autoattack import install

    return install(monkeypatch)


def attacked(count: int = 6) -> tuple[Any, Tensor, Tensor]:
    model, x = linear_model(20, classes=4), images(count, 20, "middle")
    y = model(x).argmax(1)
    y[0] = (y[0] + 1) % 4
    return model, x, y


def between(distance: Tensor, rank: int) -> float:
    """A radius that no image is at."""
    return float(distance.sort().values[rank : rank + 2].mean())


def test_a_pool_takes_what_holds_and_nothing_else() -> None:
    model, x, y = attacked()
    nearest = fmn(model, x, y, steps=100)
    theirs = nearest.adversarial.clone()
    theirs[1] = x[1]  # found nothing
    theirs[2] = x[2] + 0.5 * (theirs[2] - x[2])  # claims what is no adversarial image
    pool = Pool(6)
    pool.update(theirs, model=model, x=x, y=y, name="foolbox", threat="l2")
    found = pool.result
    assert found.winner == ("clean", "", "", "foolbox", "foolbox", "foolbox")
    assert found.distance[0] == 0
    assert found.distance[1:3].isinf().all()
    torch.testing.assert_close(found.distance[3:], nearest.distance[3:])
    assert (found.distance[3:] >= exact_distance(model, x[3:], y[3:], "l2") * (1 - 1e-5)).all()
    assert torch.equal(found.adversarial[:3], x[:3])
    assert found.forwards.tolist() == [1, 2, 2, 2, 2, 2]
    # What is nearer wins, whoever found it, and the norm of the pool is the norm of the next images.
    pool.update(attack(model, x, y, attacks="quick"))
    assert pool.result.success.all()
    farther = (x + 1.5 * (theirs - x)).clamp(0, 1)
    pool.update(farther, model=model, x=x, y=y, name="art")
    assert "art" not in pool.result.winner


def test_arrays_and_images_outside_of_the_box_are_measured_inside() -> None:
    """ART returns arrays; some attacks forget to clip, and what a clipped image is worth is asked here."""
    model, x, y = attacked()
    direction = fmn(model, x, y, steps=50).adversarial - x
    far = x + 20 * direction
    assert (far < 0).any()
    pool = Pool(6)
    pool.update(far.numpy(), model=model, x=x, y=y, name="art", threat="linf")  # type: ignore[arg-type]
    result = pool.result
    kept = result.winner.index("art")
    assert result.adversarial.min() >= 0
    assert result.adversarial.max() <= 1
    torch.testing.assert_close(result.distance[kept], (far[kept].clamp(0, 1) - x[kept]).abs().max())


def test_a_shard_of_somebody_elses_images_goes_to_its_places() -> None:
    model, x, y = attacked()
    adversarial = fmn(model, x, y, steps=50).adversarial
    pool, rows = Pool(6), torch.tensor([5, 3])
    pool.update(adversarial[rows], rows, model=model, x=x[rows], y=y[rows], name="theirs", threat="l2")
    assert pool.missing.tolist() == [0, 1, 2, 4]
    assert pool.result.winner[3] == pool.result.winner[5] == "theirs"


def test_bad_images_are_one_sentence() -> None:
    model, x, y = attacked()
    pool = Pool(6)
    with pytest.raises(ConfigError, match=r"AttackResult, or images with model=, x= and y="):
        pool.update(x)
    with pytest.raises(ConfigError, match="pass threat="):
        pool.update(x, model=model, x=x, y=y)
    with pytest.raises(DataError, match=r"one image for each of x, floats of shape \(6, 20\)"):
        pool.update(x[:3], model=model, x=x, y=y, threat="l2")
    with pytest.raises(DataError, match="must be finite"):
        pool.update(x.masked_fill(x > 0.5, torch.nan), model=model, x=x, y=y, threat="l2")
    with pytest.raises(ConfigError, match='not "clean"'):
        pool.update(x, model=model, x=x, y=y, threat="l2", name="clean")
    pool.update(fmn(model, x, y, steps=10))
    with pytest.raises(ConfigError, match="belong to images"):
        pool.update(fmn(model, x, y, steps=10), model=model)
    with pytest.raises(ConfigError, match="not comparable"):
        pool.update(x, model=model, x=x, y=y, threat="linf")


def test_autoattack_by_its_name_breaks_what_it_can_and_is_verified(toy: Any) -> None:
    """The toy breaks an image exactly where the nearest hyperplane is within the radius."""
    found = part(24, seed=7, wrong=2)
    x, y, model = found.pixels / 255, found.labels, linear()
    exact = attack(model, x, y).distance
    eps = between(exact, 12)
    result = attack(model, x, y, attacks=["autoattack"], eps=eps)
    assert torch.equal(result.robust(eps), exact > eps)
    assert set(result.winner) == {"clean", "autoattack", ""}
    assert (result.distance[result.success] <= eps).all()
    wrong = model(result.adversarial).argmax(1) != y
    assert torch.equal(wrong, result.success)
    assert (result.forwards >= 3)[exact > 0].all()
    # What an earlier attack broke is not asked about again.
    toy.sizes.clear()
    both = attack(model, x, y, attacks=["fmn", "autoattack"], eps=eps)
    assert toy.sizes == [int(both.robust(eps).sum())]
    assert "autoattack" not in both.winner


def test_autoattack_by_its_name_takes_several_radii(toy: Any) -> None:
    found = part(24, seed=7)
    x, y, model = found.pixels / 255, found.labels, linear()
    exact = attack(model, x, y, threat="linf").distance
    radii = [between(exact, rank) for rank in (7, 16)]
    result = attack(model, x, y, threat="linf", attacks=["autoattack"], eps=radii)
    for eps in radii:
        assert torch.equal(result.robust(eps), exact > eps)


def test_autoattack_refuses_what_it_cannot(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = small_network(), images(4, 20, "middle")
    y = model(x).argmax(1)
    with pytest.raises(ConfigError, match="autoattack needs radii to attack at: pass eps="):
        attack(model, x, y, attacks=["autoattack"])
    with pytest.raises(ConfigError, match="keeps to no budget"):
        attack(model, x, y, attacks=["autoattack"], eps=0.1, budget=100)
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(ConfigError, match="pip install pyautoattack"):
        attack(model, x, y, attacks=["autoattack"], eps=1e-6)


def test_a_pool_refuses_images_of_another_shape_or_precision_and_stays_as_it_was() -> None:
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(torch.nn.Flatten(), linear_model(12, classes=3)).eval()
    found = fmn(model, x, model(x).argmax(1), steps=20)
    pool = Pool(4)
    with pytest.raises(DataError, match="distance must be"):
        pool.update(replace(found, distance=-found.distance))
    with pytest.raises(DataError, match="The pool is empty"):
        _ = pool.result
    pool.update(found)
    before = pool.result.distance.clone()
    nearer = replace(found, distance=found.distance / 2)
    for other, words in (
        (replace(nearer, adversarial=found.adversarial[:, :1]), "images of shape \\(3, 2, 2\\) and the result some"),
        (replace(nearer, adversarial=found.adversarial.double()), "torch.float32 and the result some in torch.float64"),
    ):
        with pytest.raises(DataError, match=words):
            pool.update(other)
        assert torch.equal(pool.result.distance, before)
