"""A trained network: a norm that attacks know nothing of must lead them as far as the one that it equals."""

import pytest
import torch
from torch import Tensor, nn

from gradreg import fit
from gradreg.attacks import attack
from gradreg.data import Images, load
from gradreg.norms import Mahalanobis, Threat, Weighted


class Plain(Weighted):
    """l2 by nothing but the generic ways that a user's six methods give."""

    core = property(lambda self: self)
    pull, climb, retract, nearest = Threat.pull, Threat.climb, Threat.retract, Threat.nearest
    to_core, from_core, gradient_to_core = Threat.to_core, Threat.from_core, Threat.gradient_to_core


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, Tensor, Tensor]:
    data = load("mnist5k")
    assert isinstance(data.train, Images)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.AvgPool2d(2), nn.Conv2d(1, 8, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, 10)
        )
    fit(model, data.train.subset(slice(600)), epochs=3, held_out=50, batch_size=32)
    x, y = data.test.floats(slice(16)), data.test.labels[:16]
    return model.eval(), x, y


@pytest.mark.parametrize(
    "t", [Weighted("l2", torch.ones(1, 28, 28)), Plain("l2", 1.0), Mahalanobis(torch.eye(1))], ids=["w", "generic", "m"]
)
def test_the_same_norm_under_another_name_finds_the_same_distances(
    t: Threat, digits: tuple[nn.Module, Tensor, Tensor]
) -> None:
    plain, other = (attack(*digits, threat=norm) for norm in ("l2", t))
    broken = plain.distance > 0
    assert int(broken.sum()) >= 10
    assert torch.equal(broken, other.distance > 0)
    ratio = other.distance[broken] / plain.distance[broken]
    assert abs(float(ratio.mean()) - 1) <= 0.002
    assert ratio.max() <= 1.01
    assert ratio.min() >= 0.99
