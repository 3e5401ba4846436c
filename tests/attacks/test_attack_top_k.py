"""Top-k: the label must leave the first k, so k rivals must pass it, and which k is part of the search."""

from itertools import combinations

import pytest
import torch
from attack_models import images, linear_model
from scipy.optimize import linprog, nnls
from torch import Tensor
from torch.testing import assert_close

from gradreg import attack
from gradreg.attacks.rivals import lead, soft_lead
from gradreg.losses import margin, soft_margin
from gradreg.norms import ThreatName

CLASSES, PIXELS, K = 7, 24, 3


def exact_distance(x: Tensor, y: int, weight: Tensor, bias: Tensor, threat: str) -> float:
    """The nearest point, over all sets of K rivals, of the polyhedron where all of the set are ahead of the label."""
    logits, far = weight @ x + bias, []
    for chosen in combinations([rival for rival in range(CLASSES) if rival != y], K):
        slopes = (weight[list(chosen)] - weight[y]).numpy()
        need = (logits[y] - logits[list(chosen)]).numpy()
        if threat == "l2":
            # The least distance problem min ‖d‖, Gd ≥ h by non-negative least squares (Lawson & Hanson, ch. 23).
            target = torch.zeros(PIXELS + 1, dtype=torch.float64).numpy()
            target[-1] = 1
            stacked = torch.cat([torch.from_numpy(slopes).T, torch.from_numpy(need)[None]]).numpy()
            residual = stacked @ nnls(stacked, target)[0] - target
            far.append(float(((-residual[:-1] / residual[-1]) ** 2).sum() ** 0.5))
        else:
            rows = [[-v for v in slope] + [0.0] for slope in slopes.tolist()]
            box = [[float(i == j) * sign for j in range(PIXELS)] + [-1.0] for i in range(PIXELS) for sign in (1, -1)]
            solved = linprog(
                [0.0] * PIXELS + [1.0], rows + box, [*(-need).tolist(), *[0.0] * (2 * PIXELS)], bounds=(None, None)
            )
            far.append(float(solved.fun or 0.0))
    return min(far)


@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_the_nearest_of_all_sets_of_rivals(threat: ThreatName) -> None:
    model = linear_model(PIXELS, CLASSES, seed=5)
    # Grey is near every boundary, so that the box does not matter.
    model.bias.data.sub_(0.5 * model.weight.detach().sum(1))
    x = images(12, PIXELS, "middle")
    y = model(x).argmax(1)
    weight, bias = model.weight.detach().double(), model.bias.detach().double()
    exact = torch.tensor(
        [exact_distance(a.double(), b, weight, bias, threat) for a, b in zip(x, y.tolist(), strict=True)]
    )
    assert float(exact.max()) < 0.44
    ratio = attack(model, x, y, threat=threat, topk=K).distance / exact
    assert float(ratio.min()) >= 1 - 1e-5
    assert float(ratio.max()) <= 1.02
    assert float(ratio.median()) <= 1.002


def test_the_soft_margin_is_the_sum_over_all_sets() -> None:
    """e_k by its definition, and its gradient by central differences."""
    scores = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 3, 5, 2])
    for k in (1, 2, 3, 4):
        for row, label in enumerate(y.tolist()):
            rivals = [float(scores[row, i]) for i in range(6) if i != label]

            def symmetric(j: int, rivals: list[float] = rivals) -> Tensor:
                return torch.tensor(
                    [4.0 * sum(part) for part in combinations(rivals, j)], dtype=torch.float64
                ).logsumexp(0)

            exact = (symmetric(k) - symmetric(k - 1)) / 4.0 - scores[row, label]
            assert_close(soft_margin(scores, y, 4.0, k)[row], exact)
        leaf = scores.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda z, k=k: soft_margin(z, y, 4.0, k), leaf)
        assert_close(soft_margin(scores, y, 1e4, k), margin(scores, y, k), rtol=0, atol=1e-3)


def test_the_soft_margin_of_many_sharp_scores_is_finite() -> None:
    scores = (100 * torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))).requires_grad_()
    found = soft_margin(scores, torch.tensor([0, 1, 2]), 1000.0, 5)
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert bool(gradient.isfinite().all())
    assert_close(found, margin(scores, torch.tensor([0, 1, 2]), 5), rtol=0, atol=1e-3)
    # Of the rivals' weights: they sum to 1, and the label's is −1.
    assert_close(gradient.sum(1), torch.zeros(3), rtol=0, atol=1e-4)


def test_a_set_leads_by_its_last() -> None:
    logits, y = torch.tensor([[1.0, 3.0, 2.0, 5.0]]), torch.tensor([0])
    targets = torch.tensor([[1, 3]])
    assert float(lead(logits, y, targets)) == 2.0
    assert float(soft_lead(logits, y, targets, torch.ones(1, 1), 100.0)) == pytest.approx(2.0, abs=1e-6)
    assert float(soft_lead(logits, y, targets[:, 1:], torch.full((1, 1), 0.5), 3.0)) == pytest.approx(2.0)
