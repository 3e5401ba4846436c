"""Prop. 2.2 for any loss and its threshold, where L, ω and the distance have closed forms."""

from functools import partial
from math import log
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.bounds import BoundsError, Regularity, bounds, estimate_regularity
from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy
from gradreg.norms import THREATS


@pytest.mark.parametrize("threat", list(THREATS))
def test_cross_entropy_of_two_classes_gives_the_exact_distance(threat: str, images: Tensor) -> None:
    """ℓ = log(1 + exp(−m)) with m linear: ω(ε) + ε‖∇ℓ‖ = ℓ(m − εW) − ℓ(m), so the ω-bound ends where m − εW = 0."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double().eval()
    labels = model(images).argmax(1)
    weight = model.get_parameter("1.weight").detach()
    steep = THREATS[threat].dual_norm((weight[0] - weight[1])[None])
    m = (model(images)[:, 0] - model(images)[:, 1]).detach().abs()
    exact = m / steep
    eps = torch.linspace(0, 1.2 * float(exact.max()), 200)[1:].tolist()
    known = estimate_regularity(
        model, (images, labels), THREATS[threat], method="local", criterion="cross_entropy", eps=eps, clip=False,
        slack=0,
    )  # fmt: skip
    assert (known.criterion, known.threshold) == ("cross_entropy", log(2))
    found = bounds(model, images, labels, known)
    assert_close(found.margin, F.softplus(-m))
    assert_close(found.omega, exact, rtol=0.01, atol=float(eps[0]))
    assert bool((found.omega <= exact * (1 + 1e-9)).all())
    # L is at most the slope at m = 0 that the search passed, |ℓ'| W, and at least the one at the image.
    assert bool((known.lipschitz <= steep).all())
    assert bool((found.lipschitz <= exact).all())
    assert_close(known.crossing, exact, rtol=0.01, atol=0)


class Bowl(nn.Module):
    """Logits (|a|² − 1, 0) with a = x − ½: for label 1 the loss is the first of them, and ω(ε) = ε²."""

    def forward(self, x: Tensor) -> Tensor:
        value = (x.flatten(1) - 0.5).square().sum(1) - 1
        return torch.stack([value, torch.zeros_like(value)], 1)


def height(logits: Tensor, y: Tensor) -> Tensor:
    return logits[:, 0] - y * 0


def twice(logits: Tensor, y: Tensor) -> Tensor:
    return 2 * height(logits, y)


@pytest.mark.parametrize("threshold", [0.0, -0.3])
def test_a_loss_of_the_users_own_and_its_threshold(threshold: float) -> None:
    """|a + v|² − 1 ≥ ℓ₀ is a sphere around the middle: the distance is √(1 + ℓ₀) − |a|, and so is the ω-bound."""
    x = 0.5 + 0.05 * torch.randn(20, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.ones(20, dtype=torch.int64)
    exact = (1 + threshold) ** 0.5 - (x - 0.5).flatten(1).norm(dim=1)
    eps = torch.linspace(0, 1.1, 111)[1:].tolist()
    known = estimate_regularity(
        Bowl().eval(), (x, labels), method="local", criterion=height, threshold=threshold, eps=eps, slack=0, clip=False
    )
    found = bounds(Bowl().eval(), x, labels, known, criterion=height)
    assert_close(found.omega, exact, rtol=0.015, atol=0)
    assert_close(known.crossing, exact, rtol=0.015, atol=0)
    # The steepest slope passed is at least that half-way to the crossing, and none within reach exceeds 2(|a| + ε).
    assert bool((found.lipschitz <= exact).all())


def test_the_usual_margin_goes_by_its_name(linear: nn.Module, images: Tensor) -> None:
    labels = linear(images).argmax(1)
    usual = estimate_regularity(linear, (images, labels), method="local")
    named = estimate_regularity(linear, (images, labels), method="local", criterion="margin", threshold=0)
    assert torch.equal(usual.omega, named.omega)
    # A stricter threshold leaves less room.
    strict = estimate_regularity(linear, (images, labels), method="local", threshold=-0.05)
    assert strict.threshold == -0.05
    assert bool((strict.crossing < usual.crossing)[bounds(linear, images, labels, strict).best > 0].all())
    shorter, longer = (bounds(linear, images, labels, known).omega.mean() for known in (strict, usual))
    assert shorter < 0.8 * longer
    # With several classes an image may be right with a probability below one half, and has no bound then.
    entropy = estimate_regularity(linear, (images, labels), method="local", criterion="cross_entropy")
    found = bounds(linear, images, labels, entropy)
    unsure = linear(images).softmax(1).amax(1) <= 0.5
    assert bool(unsure.any())
    assert torch.equal(found.best == 0, unsure)
    assert bool((found.omega <= bounds(linear, images, labels, usual).omega / 0.9 + 1e-6).all())


def test_a_regularity_remembers_its_criterion(tmp_path: Path, images: Tensor, linear: nn.Module) -> None:
    labels = linear(images).argmax(1)
    ours = partial(cross_entropy)
    known = estimate_regularity(linear, (images, labels), method="local", criterion=ours, threshold=log(2))
    known.save(tmp_path / "known.safetensors")
    again = Regularity.load(tmp_path / "known.safetensors")
    assert (again.criterion, again.threshold) == ("gradreg.losses.cross_entropy", log(2))
    assert torch.equal(again.crossing, known.crossing)
    expected = estimate_regularity(linear, (images, labels), method="local", criterion="cross_entropy")
    assert_close(
        bounds(linear, images, labels, again, criterion=ours).omega, bounds(linear, images, labels, expected).omega
    )
    with pytest.raises(ConfigError, match=r"about the criterion gradreg.losses.cross_entropy: pass it as criterion="):
        bounds(linear, images, labels, again)
    with pytest.raises(ConfigError, match=r"criterion must be gradreg.losses.cross_entropy.*got test_criterion.twice"):
        bounds(linear, images, labels, again, criterion=twice)


def test_what_would_promise_too_much_is_refused(images: Tensor, linear: nn.Module) -> None:
    labels = torch.arange(60) % 4
    data = images, labels
    with pytest.raises(ConfigError, match=r"threshold must be at most 0 for margin, top-1; got 0.1"):
        estimate_regularity(linear, data, method="local", threshold=0.1)
    with pytest.raises(ConfigError, match=r"threshold must be at most 1\.09861 for cross_entropy, top-2; got 1\.2"):
        estimate_regularity(linear, data, method="local", criterion="cross_entropy", threshold=1.2, topk=2)
    with pytest.raises(BoundsError, match=r"at least threshold = 1\.5 for every misclassified image; got 1\.1"):
        estimate_regularity(linear, data, method="local", criterion=cross_entropy, threshold=1.5)
    with pytest.raises(ConfigError, match="needs threshold="):
        estimate_regularity(linear, data, method="local", criterion=cross_entropy)
    with pytest.raises(ConfigError, match=r"one loss per image, shape \(60,\); got .*reduction='none'"):
        estimate_regularity(linear, data, method="local", criterion=nn.CrossEntropyLoss(), threshold=log(2))
    with pytest.raises(ConfigError, match="criterion must be one of 'margin', 'cross_entropy'; got 'hinge'"):
        estimate_regularity(linear, data, criterion="hinge")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="criterion must be one of margin, cross_entropy, or a function"):
        estimate_regularity(linear, data, criterion=3)  # type: ignore[arg-type]
