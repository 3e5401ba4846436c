"""Crafted images against closed forms: on a linear model steepest ascent is known exactly."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy
from gradreg.norms import threat
from gradreg.objectives import Adversarial, Draws, Moment, NoisyStep, Objective, RandomStartStep, Trades
from gradreg.objectives.crafting import ascend, ascend_until_wrong
from gradreg.objectives.trades import divergence
from gradreg.penalty.passes import Calls

EPS = 0.05


def moment(images: int, **changes: object) -> Moment:
    return replace(Moment(3, 1.5, Draws((0, 3), images, slice(images))), **changes)  # type: ignore[arg-type]


def two_classes() -> tuple[nn.Module, Tensor, Tensor]:
    """A linear model of two classes, for which the worst point of any ball is known, and images inside the box."""
    source = torch.Generator().manual_seed(5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).double()
    for weight in model.parameters():
        weight.data.normal_(generator=source)
    x = 0.3 + 0.4 * torch.rand(6, 3, 2, 2, generator=source, dtype=torch.float64)
    return model, x, torch.randint(0, 2, (6,), generator=source)


def slope_direction(model: nn.Module, y: Tensor, name: str) -> Tensor:
    """Where the loss of class y rises fastest: along the other class's weights minus its own."""
    weight: Tensor = model[1].weight.detach()  # type: ignore[index]
    return threat(name).ascent((weight[1 - y] - weight[y]).view(-1, 3, 2, 2))  # type: ignore[arg-type]


def seen_by(objective: Objective, at: Moment | None = None) -> tuple[nn.Module, Tensor, Tensor, Tensor, Tensor]:
    """The images that the last forward, the one trained on, was given; and the loss."""
    model, x, y = two_classes()
    seen: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    loss = objective(model, x, y, at or moment(len(x))).loss
    return model, x, y, seen[-1], loss


@pytest.mark.parametrize("name", ["linf", "l2"])
@pytest.mark.parametrize("random_start", [True, False])
def test_pgd_reaches_the_exact_maximum_of_a_linear_model(name: str, random_start: bool) -> None:
    objective = Adversarial(name, EPS, steps=60, step_size=EPS / 2, random_start=random_start)  # type: ignore[arg-type]
    model, x, y, worst, loss = seen_by(objective)
    exact = x + EPS * slope_direction(model, y, name)
    assert_close(worst, exact, rtol=0, atol=1e-9)
    assert_close(loss, cross_entropy(model(exact), y).mean(), rtol=1e-5, atol=0)


def test_the_authors_variant_neither_starts_at_random_nor_clips() -> None:
    step = 0.43 / 3072**0.5
    objective = Adversarial("linf", 0.0314, steps=7, step_size=step, random_start=False, clip=False)
    model, x, y = two_classes()
    dark = torch.zeros_like(x)
    seen: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    objective(model, dark, y, moment(len(x)))
    assert len(seen) == 8
    assert_close(seen[1], step * slope_direction(model, y, "linf"))
    assert_close(seen[-1], min(7 * step, 0.0314) * slope_direction(model, y, "linf"))
    assert seen[-1].min() < 0


def test_clipping_keeps_images_in_the_box() -> None:
    model, x, y = two_classes()
    seen: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    for objective in (Adversarial(eps=0.5), RandomStartStep(eps=0.5), NoisyStep(eps=0.5), Trades(eps=0.5)):
        objective(model, x, y, moment(len(x)))
    assert torch.stack(seen[-1:]).min() >= 0
    assert torch.stack(seen[-1:]).max() <= 1


def test_random_start_step_by_formula() -> None:
    model, x, y, stepped, _ = seen_by(RandomStartStep("linf", EPS))
    start = moment(len(x)).draws.sample("start", x, lambda like, source: threat("linf").sample(like, EPS, source))
    exact = x + (start + 1.25 * EPS * slope_direction(model, y, "linf")).clamp(-EPS, EPS)
    assert_close(stepped, exact, rtol=0, atol=1e-12)


def test_noisy_step_by_formula_leaves_the_ball() -> None:
    model, x, y, stepped, _ = seen_by(NoisyStep("linf", EPS))
    noise = moment(len(x)).draws.sample("start", x, lambda like, source: threat("linf").sample(like, 2 * EPS, source))
    assert_close(stepped, x + noise + EPS * slope_direction(model, y, "linf"), rtol=0, atol=1e-12)
    assert (stepped - x).abs().max() > EPS


def test_trades_by_formula() -> None:
    model, x, y, worst, loss = seen_by(Trades("linf", EPS, beta=4.0, steps=40))
    p, q = model(x).softmax(1), model(worst).softmax(1)
    kl = (p * (p / q).log()).sum(1).mean()
    assert_close(loss, F.cross_entropy(model(x), y) + 4 * kl)
    # With two classes the divergence has its two local maxima at the corners along the difference of the weights.
    corner = slope_direction(model, y, "linf")
    values = [divergence(model(x + sign * EPS * corner), model(x)) for sign in (1, -1)]
    found = divergence(model(worst), model(x))
    assert_close(torch.minimum(*((found - value).abs() for value in values)), torch.zeros_like(found))


def test_divergence_is_finite_for_sure_networks() -> None:
    sure = torch.tensor([[500.0, -500.0]])
    assert divergence(sure, sure).item() == 0
    assert divergence(-sure, sure).isfinite().all()


@pytest.mark.parametrize("make", [Adversarial, RandomStartStep, NoisyStep, Trades])
def test_a_ramp_starts_at_the_clean_image(make: Callable[..., Objective]) -> None:
    _, x, _, seen, _ = seen_by(make(eps=EPS, ramp_epochs=4), moment(6, epoch=0.0))
    assert_close(seen, x)
    _, x, _, seen, _ = seen_by(make(eps=EPS, ramp_epochs=4), moment(6, epoch=2.0))
    limit = EPS / 2 * (3 if make is NoisyStep else 1)
    assert 0 < (seen - x).abs().max() <= limit + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": -1.0}, r"eps must be at least 0; got -1.0\."),
        ({"steps": 0}, r"steps must be at least 1; got 0\."),
        ({"step_size": 0.0}, r"step_size must be positive; got 0.0\."),
        ({"threat": "l3"}, "threat must be one of linf, l2, l1, .*; got 'l3'"),
        ({"bn": "off"}, "bn must be one of 'train', 'frozen'; got 'off'"),
    ],
)
def test_impossible_attacks_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Adversarial(**options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"beta must be at least 0 .the weight of the divergence.; got -1"):
        Trades(beta=-1)


class Counted:
    """Images that went forwards and backwards through a model."""

    def __init__(self, model: nn.Module) -> None:
        self.forwards: list[int] = []
        self.backwards: list[int] = []
        model.register_forward_pre_hook(lambda _, inputs: self.forwards.append(len(inputs[0])))
        model.register_full_backward_hook(lambda _, inputs, outputs: self.backwards.append(len(outputs[0])))  # type: ignore[index]


@pytest.mark.parametrize("name", ["linf", "l2"])
def test_stopping_early_by_formula(name: str) -> None:
    """On a linear model every step moves the margin by the same amount, so the step that ends a search is known."""
    model, x, _ = two_classes()
    logits = model(x).detach()
    y = logits.argmax(1)
    y[0] = 1 - y[0]  # wrong from the start
    weight = (model[1].weight[0] - model[1].weight[1]).detach()  # type: ignore[index]
    slope = weight.abs().sum() if name == "linf" else weight.norm()
    step, steps = 0.004, 9
    needed = ((logits[:, 0] - logits[:, 1]).abs() / (step * slope)).ceil()
    needed[0] = 0
    needed = needed.clamp(max=steps)
    assert 0 < (needed < steps).sum() < len(x), "some searches must end early and some must not"
    options: dict[str, Any] = {
        "threat": name,
        "eps": 1.0,
        "steps": steps,
        "step_size": step,
        "random_start": False,
        "bn": "frozen",
    }
    count = Counted(model)
    seen: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    Adversarial(stop_early=True, **options)(model, x, y, moment(len(x)))
    exact = x + step * needed.view(-1, 1, 1, 1) * slope_direction(model, y, name)
    assert_close(seen[-1], exact, rtol=0, atol=1e-9)
    # A pass takes the images that the pass before still saw right; the last forward is the one trained on.
    expected = [len(x), *(int((needed >= passed).sum()) for passed in range(1, steps))]
    assert count.forwards[:-1] == expected
    assert count.backwards == expected
    assert sum(expected) < steps * len(x)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_stopping_early_ends_at_the_first_wrong_point_of_the_full_search(smooth_net: nn.Module, dropout: float) -> None:
    """With dropout too, which is drawn for whole batches: then all images stay in, and no search is disturbed."""
    x = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(dropout), smooth_net).double()
    with torch.no_grad():
        model(x)
        y = model.eval()(x).argmax(1)
    model.train()
    calls = Calls(model, cross_entropy, "frozen", "keep")
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))
    model.register_forward_hook(lambda _, given, made: outputs.append(made.detach()))
    before = torch.get_rng_state()
    options: dict[str, Any] = {"radius": 0.012, "step": 0.003, "steps": 6}
    end = ascend(calls, x, y, threat("linf"), **options)
    expected, wrong = end.clone(), torch.zeros(40, dtype=torch.bool)
    for point, logits in reversed(list(zip(inputs, outputs, strict=True))):
        now = logits.argmax(1) != y
        expected[now], wrong = point[now], wrong | now
    assert 5 < wrong.sum() < 35, "some searches must end early and some must not"
    inputs.clear()
    found = ascend_until_wrong(calls, x, y, threat("linf"), **options)
    assert_close(found, expected, rtol=0, atol=1e-12)
    assert (len(inputs[-1]) < 40) == (dropout == 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_all_stopped_at_once_ends_the_search() -> None:
    model, x, _ = two_classes()
    y = 1 - model(x).argmax(1)
    count = Counted(model)
    Adversarial(stop_early=True, bn="frozen", random_start=False)(model, x, y, moment(len(x)))
    assert (count.forwards, count.backwards) == ([6, 6], [])


def test_stopping_early_needs_images_that_do_not_interact() -> None:
    with pytest.raises(ConfigError, match=r"with batch statistics an image's loss depends on the others: set bn"):
        Adversarial(stop_early=True)
