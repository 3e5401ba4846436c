"""Targets of any form: soft labels, several labels, masks, tables, tuples; in the penalty, in objectives and in fit."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import gradreg
from gradreg import ConfigError, DataError
from gradreg.objectives import OBJECTIVES

N, CLASSES = 12, 4


class Mixed(NamedTuple):
    first: Tensor
    second: Tensor
    share: float


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.GELU(), nn.Linear(8, CLASSES))


def segmenter() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.GELU(), nn.Conv2d(6, CLASSES, 1))


def per_pixel(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y, reduction="none").flatten(1).mean(1)


def mixed(logits: Tensor, y: Mixed) -> Tensor:
    one, two = (F.cross_entropy(logits, part, reduction="none") for part in (y.first, y.second))
    return torch.lerp(two, one, y.share)


def several(logits: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, y, reduction="none").mean(1)


def from_table(logits: Tensor, y: dict[str, Any]) -> Tensor:
    found: Tensor = F.cross_entropy(logits, y["class"], reduction="none") * y["weight"] + y["more"][0].sum(1) * 0
    return found


@dataclass(frozen=True)
class Case:
    model: Callable[[], nn.Module]
    y: Any
    criterion: Any
    score: Any = None


def _draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


LABELS = torch.arange(N) % CLASSES
SOFT = torch.rand(N, CLASSES, generator=_draw(1)).softmax(1)
CASES: dict[str, Case] = {
    "soft labels": Case(classifier, SOFT, None),
    "cutmix": Case(classifier, 0.7 * F.one_hot(LABELS, CLASSES) + 0.3 * F.one_hot(LABELS.flip(0), CLASSES), None),
    "mixup of a pair": Case(
        classifier, Mixed(LABELS, LABELS.flip(0), 0.7), mixed, lambda z, y: (z.argmax(1) == y.first).float()
    ),
    "several labels": Case(
        classifier,
        (torch.rand(N, CLASSES, generator=_draw(2)) > 0.5).float(),
        several,
        lambda z, y: ((z > 0) == (y > 0.5)).float().mean(1),
    ),
    "per pixel": Case(
        segmenter,
        torch.randint(CLASSES, (N, 4, 4), generator=_draw(3)),
        per_pixel,
        lambda z, y: (z.argmax(1) == y).flatten(1).float().mean(1),
    ),
    "a table": Case(
        classifier,
        {"class": LABELS, "weight": torch.rand(N, generator=_draw(4)), "more": [torch.zeros(N, 2)], "name": "photos"},
        from_table,
        lambda z, y: (z.argmax(1) == y["class"]).float(),
    ),
}


@pytest.fixture
def x() -> Tensor:
    return torch.rand(N, 3, 4, 4, generator=_draw(0))


def loss_of(case: Case) -> Any:
    return case.criterion or (lambda z, y: F.cross_entropy(z, y, reduction="none"))


@pytest.mark.parametrize("kind", CASES)
def test_the_penalty_is_that_of_the_loss(kind: str, x: Tensor) -> None:
    """Against double backprop written out here: λ/2 times the mean squared norm of each image's own gradient."""
    case = CASES[kind]
    model, given = case.model(), {} if case.criterion is None else {"criterion": case.criterion}
    leaf = x.clone().requires_grad_()
    losses = loss_of(case)(model(leaf), case.y)
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    norms = gradient.flatten(1).norm(dim=1)
    out = gradreg.regularized_loss(model, x, case.y, lam=0.1, h=1e-3, **given)
    assert_close(out.clean, losses.mean().detach(), rtol=1e-5, atol=1e-6)
    assert_close(out.grad_norm, norms, rtol=1e-4, atol=1e-6)
    assert_close(out.penalty, 0.05 * norms.square().mean(), rtol=2e-2, atol=1e-5)
    out.loss.backward()
    counted = gradreg.GradientPenalty(lam=0.1, h=1e-3, **given)(model, x, case.y)
    assert torch.equal(counted.loss, out.loss)


@pytest.mark.parametrize("kind", CASES)
def test_a_part_of_the_batch_keeps_its_own_targets(kind: str, x: Tensor) -> None:
    case = CASES[kind]
    given = {} if case.criterion is None else {"criterion": case.criterion}
    whole = gradreg.regularized_loss(case.model(), x, case.y, lam=0.1, **given)
    part = gradreg.regularized_loss(case.model(), x, case.y, lam=0.1, fraction=0.5, step=3, **given)
    measured = ~part.grad_norm.isnan()
    assert measured.sum() == N // 2
    assert_close(part.grad_norm[measured], whole.grad_norm[measured])
    assert_close(part.clean, whole.clean)


# What an objective needs of targets, where it cannot train towards all of them.
NEEDS = {"label-start": "one label per image", "free": "one tensor"}


@pytest.mark.parametrize(("objective", "needs"), NEEDS.items())
def test_an_objective_that_needs_other_targets_says_so(objective: str, needs: str, x: Tensor) -> None:
    case = CASES["a table"]
    with pytest.raises(ConfigError, match=f"needs .*{needs}"):
        gradreg.fit(
            case.model(), ([(x, case.y)], [(x, case.y)]), {"name": objective}, epochs=1, batch_size=N,
            criterion=case.criterion, score=case.score,
        )  # fmt: skip


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", CASES)
def test_every_objective_trains_towards_them(kind: str, objective: str, x: Tensor) -> None:
    case = CASES[kind]
    if objective == "label-start" or (objective == "free" and not isinstance(case.y, Tensor)):
        return  # refused, as above
    model = case.model()
    settings: dict[str, Any] = {"epochs": 3, "batch_size": N, "optimizer": {"name": "adamw", "lr": 0.02}}
    has_radius = any(each.name == "eps" for each in fields(OBJECTIVES[objective]))
    named = {"name": objective} | ({"eps": 0.05} if has_radius else {})
    given = {} if case.criterion is None else {"criterion": case.criterion, "score": case.score}
    probe = {"threat": "l2", "eps": 0.1, "steps": 2}
    data = ([(x, case.y)], [(x, case.y)])
    before = loss_of(case)(model(x), case.y).mean().item()
    fitted = gradreg.fit(model, data, named, probe=probe, accumulate=2, **given, **settings)
    after = loss_of(case)(model(x), case.y).mean().item()
    assert after < before
    rows = fitted.metrics
    assert rows[-1]["held_out"] == N
    assert 0 <= rows[-1]["clean"] <= 1
    assert rows[-1]["probe"] is not None


def test_a_criterion_with_more_than_one_value_per_sample_is_told_to_average(x: Tensor) -> None:
    masks = CASES["per pixel"].y
    sentence = r"shape \(12,\); got shape \(12, 4, 4\)\. Average all but the first dimension"
    for criterion in (nn.CrossEntropyLoss(reduction="none"), lambda z, y: F.cross_entropy(z, y, reduction="none")):
        for call in (
            lambda c=criterion: gradreg.regularized_loss(segmenter(), x, masks, lam=0.1, criterion=c),
            lambda c=criterion: gradreg.fit(segmenter(), ([(x, masks)], [(x, masks)]), epochs=1, criterion=c),
        ):
            with pytest.raises(ConfigError, match=sentence):
                call()
    with pytest.raises(ConfigError, match=r"got shape \(\)\. Pass a criterion with reduction='none'"):
        gradreg.regularized_loss(classifier(), x, LABELS, lam=0.1, criterion=nn.CrossEntropyLoss())


def test_what_is_wrong_with_targets_is_one_sentence(x: Tensor) -> None:
    for y, sentence in (
        ({"a": LABELS[:3]}, r"one row per image, 12; got one of shape \(3,\)"),
        ({"a": 1}, "one row per image, 12; got no tensor"),
        ("labels", "must be a tensor with one label per image, 12; got 'labels'"),
    ):
        with pytest.raises(DataError, match=sentence):
            gradreg.regularized_loss(classifier(), x, y, lam=0.1, criterion=mixed)
    case = CASES["several labels"]
    data = ([(x, case.y)], [(x, case.y)])
    with pytest.raises(ConfigError, match=r"held-out targets are not labels, .*: pass score="):
        gradreg.fit(classifier(), data, epochs=1, criterion=several)
    scores: dict[str, Any] = {
        "one number per image, .*; got 0.5": lambda z, y: 0.5,
        "one number per image": lambda z, y: z,
        "from 0 to 1": lambda z, y: z[:, 0] + 9,
    }
    for sentence, score in scores.items():
        with pytest.raises(ConfigError, match=sentence):
            gradreg.fit(classifier(), data, epochs=1, criterion=several, score=score)
    with pytest.raises(ConfigError, match="label_smoothing is that of the default criterion"):
        gradreg.fit(classifier(), data, epochs=1, criterion=several, label_smoothing=0.1)
    with pytest.raises(ConfigError, match="score must be a function; got 3"):
        gradreg.fit(classifier(), data, epochs=1, score=3)  # type: ignore[arg-type]
