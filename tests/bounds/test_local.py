"""The search around single images where the answer is known in closed form, and what it costs."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.bounds import bounds, estimate_regularity, largest_radius
from gradreg.classifier import Classifier
from gradreg.norms import THREATS


def reach_of(exact: Tensor) -> list[float]:
    return [1.5 * float(exact.max()) * share for share in (0.25, 0.5, 0.75, 1.0)]


@pytest.mark.parametrize("threat", list(THREATS))
def test_on_a_linear_model_the_loss_reaches_its_threshold_at_the_exact_distance(
    threat: str, linear: nn.Sequential, images: Tensor
) -> None:
    """The nearest of three hyperplanes, which need not be that of the likeliest rival."""
    logits, weight = linear(images).detach(), linear.get_parameter("1.weight").detach()
    labels = logits.argmax(1)
    slopes = THREATS[threat].dual_norm((weight[None] - weight[labels][:, None]).flatten(0, 1)).view(60, 4)
    behind = logits.amax(1, keepdim=True) - logits
    exact = (behind / slopes).where(slopes > 0, torch.inf).amin(1)
    known = estimate_regularity(
        linear, (images, labels), THREATS[threat], method="local", eps=reach_of(exact), scores="logits", clip=False
    )
    assert bool((known.crossing >= exact * (1 - 1e-9)).all())
    assert_close(known.crossing, exact, rtol=0.015, atol=0)
    # Its loss bends where another rival takes over, so the ω-bound may only be smaller.
    assert bool((bounds(linear, images, labels, known).omega <= exact + 1e-9).all())


def test_for_top_2_both_rivals_have_to_pass() -> None:
    """Of three classes the label leaves the top two where both others are ahead: a corner of two half-spaces."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double().eval()
    x = 0.3 + 0.4 * torch.rand(20, 1, 4, 4, dtype=torch.float64)
    labels = model(x).argmax(1)
    weight, logits = model.get_parameter("1.weight").detach(), model(x).detach()
    exact = []
    for row, label in enumerate(labels.tolist()):
        others = [rival for rival in range(3) if rival != label]
        normals, behind = weight[others] - weight[label], logits[row, label] - logits[row, others]
        # Both constraints hold with equality, or the farther one alone keeps the other.
        both = normals.T @ torch.linalg.solve(normals @ normals.T, behind)
        singles = [behind[i] * normals[i] / normals[i].square().sum() for i in range(2)]
        kept = [v for v in singles if bool((normals @ v >= behind - 1e-9).all())]
        exact.append(min((v.norm() for v in kept), default=both.norm()))
    distance = torch.stack(exact)
    known = estimate_regularity(
        model, (x, labels), method="local", eps=reach_of(distance), scores="logits", topk=2, clip=False, steps=60
    )
    assert bool((known.crossing >= distance * (1 - 1e-9)).all())
    assert float((known.crossing / distance).quantile(0.9)) < 1.1


def test_a_search_costs_at_most_120_propagations_per_image(smooth_net: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    model, x = Classifier(smooth_net.eval()), batch[0]
    y = smooth_net(x).argmax(1)
    with model.counted(len(x)) as queries:
        known = estimate_regularity(model, (x, y), "linf", method="local")
        bounds(model, x, y, known)
    assert int((queries.forwards + queries.backwards).max()) <= 120


def test_misclassified_images_have_nothing_to_reach_and_leave_the_others_alone(
    linear: nn.Module, images: Tensor
) -> None:
    right = linear(images).argmax(1)
    labels = right.where(torch.arange(60) % 3 > 0, (right + 1) % 4)
    mixed = estimate_regularity(linear, (images, labels), method="local")
    clean = estimate_regularity(linear, (images, right), method="local")
    wrong = labels != right
    assert bool(mixed.crossing[wrong].isinf().all())
    assert_close(mixed.crossing[~wrong], clean.crossing[~wrong])
    assert_close(mixed.omega[~wrong], clean.omega[~wrong])
    assert bool((bounds(linear, images, labels, mixed).best[wrong] == 0).all())


def test_radii_of_each_image_are_solved_as_if_it_were_alone() -> None:
    source = torch.Generator().manual_seed(3)
    eps = torch.rand(30, 6, generator=source, dtype=torch.float64).cumsum(1)
    omega = torch.rand(30, 6, generator=source, dtype=torch.float64).cumsum(1) / 4
    gap, slope = torch.rand(2, 30, generator=source, dtype=torch.float64) * torch.tensor([[3.0], [1.0]])
    for envelope in ("step", "linear"):
        radius, censored = largest_radius(gap, slope, eps, omega, envelope)
        for row in range(30):
            one = slice(row, row + 1)
            alone = largest_radius(gap[one], slope[one], eps[row], omega[row], envelope)
            assert_close(radius[one], alone[0])
            assert torch.equal(censored[one], alone[1])
    assert bool(censored.any())
    assert not bool(censored.all())
