"""Heads that mask classes by a huge negative logit: a class that cannot win changes no distance and hides nothing."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from gradreg.errors import ModelError
from gradreg.precision import contenders, extent

MASKS = [-1e4, -1e5, -1e9, torch.finfo(torch.float32).min]


class Masked(nn.Module):
    """A linear classifier of four classes on sixteen pixels, among others that are masked."""

    def __init__(self, mask: float | None, masked: int = 1, level: float = 0.0, noise: float = 0.0, mixes: float = 0.0):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 16, generator=generator))
        self.mask, self.masked, self.level, self.noise, self.mixes = mask, masked, level, noise, mixes

    def forward(self, x: Tensor) -> Tensor:
        z = x.flatten(1) @ self.weight.T + self.level
        z = z + self.noise * torch.randn_like(z) + self.mixes * z.mean(0, keepdim=True)
        return z if self.mask is None else torch.cat([z, z.new_full((len(z), self.masked), self.mask)], 1)


def images() -> tuple[Tensor, Tensor]:
    x = torch.rand(12, 1, 4, 4, generator=torch.Generator().manual_seed(1)) * 0.4 + 0.3
    with torch.no_grad():
        return x, Masked(None)(x).argmax(1)


def exact(x: Tensor, y: Tensor) -> Tensor:
    """The l2 distance to the nearest of the four classes' boundaries."""
    weight = Masked(None).weight.detach()
    z, rows = x.flatten(1) @ weight.T, torch.arange(len(x))
    gaps = (z[rows, y][:, None] - z) / (weight[y][:, None] - weight).norm(dim=2).clamp(min=1e-12)
    nearest: Tensor = gaps.scatter(1, y[:, None], torch.inf).amin(1)
    return nearest


@pytest.mark.parametrize(
    ("mask", "masked", "suite"), [*((mask, 1, "quick") for mask in MASKS), (-1e9, 20, "quick"), (-1e9, 1, "standard")]
)
def test_distances_are_those_of_the_classes_that_can_win(mask: float, masked: int, suite: str) -> None:
    x, y = images()
    found = gradreg.attack(Masked(mask, masked).eval(), x, y, threat="l2", attacks=suite)
    assert_close(found.distance, exact(x, y), rtol=2e-3, atol=0)


@pytest.mark.parametrize("mask", MASKS[1::2])
@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_robust_accuracy_at_a_radius(mask: float, threat: str) -> None:
    x, y = images()
    eps = 0.15 if threat == "l2" else 0.04
    plain, masked = (gradreg.attack(Masked(each).eval(), x, y, threat=threat, eps=eps) for each in (None, mask))
    assert 0 < plain.robust_accuracy(eps) < 1
    assert masked.robust_accuracy(eps) == plain.robust_accuracy(eps)


@pytest.mark.parametrize("hidden", [{"mask": -1e5}, {"mask": -1e9}, {"mask": None, "level": 300.0}])
@pytest.mark.parametrize(("trouble", "said"), [({"noise": 0.1}, "asked again"), ({"mixes": 1.0}, "other images")])
def test_neither_a_mask_nor_a_level_hides_that_answers_move(
    hidden: dict[str, Any], trouble: dict[str, Any], said: str
) -> None:
    x, y = images()
    model = Masked(**hidden, **trouble).eval()
    with pytest.raises(ModelError, match=said):
        gradreg.attack(model, x, y, threat="l2", attacks="quick")
    with pytest.raises(ModelError, match=said):
        gradreg.certify(model, x, sigma=0.1, n=200)
    code = "randomised" if "noise" in trouble else "batch-dependent"
    (flag,) = (flag for flag in gradreg.diagnose(model, x, y, threat="l2", eps=0.1) if flag.code == code)
    assert flag.severity == "error"


def test_contenders_leave_logits_without_a_mask_as_they_are() -> None:
    """Whatever their temperature or level, near a tie, and where the first k are far ahead."""
    z = torch.randn(200, 10, generator=torch.Generator().manual_seed(2))
    z[::4, 0] = z[::4].amax(1)
    for scale in (1e-6, 1.0, 1e3, 1e6):
        assert torch.equal(contenders(scale * z + 7), scale * z + 7)
    confident = torch.tensor([[0.0, -3000.0, -5000.0], [0.0, -1e9, -1e9]])
    assert torch.equal(contenders(confident), confident)
    assert torch.equal(contenders(confident[:, :2]), confident[:, :2])


def test_a_masked_class_is_shown_as_the_last_contender() -> None:
    z = torch.tensor([[1.0, -2.0, -1e9, 0.5, -1e9], [5.0, -1e6, -1e6, -1e6, 4.0]])
    shown = torch.tensor([[1.0, -2.0, -2.0, 0.5, -2.0], [5.0, 4.0, 4.0, 4.0, 4.0]])
    assert torch.equal(contenders(z), shown)
    assert extent(z).flatten().tolist() == [3.0, 1.0]
    assert extent(z, topk=2).flatten().tolist() == [3.0, 1e6 + 5], "with k = 2 a masked class is a rival"
