"""What all objectives promise: what they leave behind, and that a step's draws do not depend on how it is cut up."""

from dataclasses import fields, replace
from inspect import signature

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from gradreg.config.tables import plain
from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy
from gradreg.objectives import (
    OBJECTIVES,
    Adversarial,
    Draws,
    Gradient,
    Moment,
    Noise,
    NoisyStep,
    Objective,
    RandomStartStep,
    Trades,
    Undefended,
)
from gradreg.objectives.base import smoothed_cross_entropy
from gradreg.penalty import regularized_loss

CHOSEN: dict[str, Objective] = {
    "gradient": Gradient(eps=0.5, h=0.1, h_jitter=0.5),
    "adversarial": Adversarial(steps=2),
    "trades": Trades(steps=2),
    "noise": Noise(0.25, Gradient(eps=0.5, h=0.1)),
}
# A new objective is among them as soon as it is registered.
ALL: dict[str, Objective] = {name: CHOSEN[name] if name in CHOSEN else kind() for name, kind in OBJECTIVES.items()}


def net() -> nn.Sequential:
    """With everything that a second pass could disturb: batch statistics and dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(4 * 36, 5)
    )


def images(count: int = 8) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    return torch.rand(count, 3, 8, 8, generator=source), torch.randint(0, 5, (count,), generator=source)


def moment(images: int = 8, share: slice | None = None, **changes: object) -> Moment:
    return replace(Moment(3, 1.5, Draws((0, 3), images, share or slice(images))), **changes)  # type: ignore[arg-type]


def test_every_objective_is_covered() -> None:
    kinds = (Undefended, Gradient, Adversarial, RandomStartStep, NoisyStep, Trades, Noise)
    assert {type(objective) for objective in ALL.values()} >= set(kinds)


@pytest.mark.parametrize("name", ALL)
def test_a_step_gives_gradients_and_leaves_flags_and_statistics_as_promised(name: str) -> None:
    model, (x, y) = net(), images()
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm2d)
    flags = [weight.requires_grad for weight in model.parameters()]
    out = ALL[name](model, x, y, moment())
    assert not any(weight.grad is not None for weight in model.parameters()), "crafting left gradients"
    out.backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())
    assert [weight.requires_grad for weight in model.parameters()] == flags
    assert x.grad is None
    assert all(module.training for module in model.modules())
    # One update a step; TRADES' authors let the crafted images in too.
    assert norm.num_batches_tracked.item() == (2 if name == "trades" else 1)  # type: ignore[union-attr]
    assert out.logits.shape == (8, 5)
    assert not out.logits.requires_grad
    assert not any(value.requires_grad or value.ndim for value in out.scalars.values())


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("trades", "undefended")])
def test_the_random_stream_moves_as_by_one_forward(name: str) -> None:
    model, (x, y) = net(), images()
    before = torch.get_rng_state()
    model(x)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    ALL[name](model, x, y, moment())
    assert torch.equal(torch.get_rng_state(), after)


def test_crafting_with_frozen_statistics_looks_at_running_ones() -> None:
    model, (x, y) = net().eval(), images()
    frozen: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: frozen.append(inputs[0].detach()))
    Adversarial(bn="frozen")(model, x, y, moment())
    in_eval_mode = frozen[-1]
    model.train()
    model[3].eval()
    Adversarial(bn="frozen")(model, x, y, moment())
    assert_close(frozen[-1], in_eval_mode)
    Adversarial(bn="train")(model, x, y, moment())
    assert not torch.equal(frozen[-1], in_eval_mode)


def test_crafting_computes_no_weight_gradients() -> None:
    """7 steps of a forward and an input gradient, then a forward and a full backward: 7·2F + 3F."""
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten())
    x, y = torch.rand(2, 8, 8, 8), torch.tensor([0, 1])
    counted = {}
    for name, objective in {"one": Adversarial(steps=1), "eight": Adversarial(steps=8)}.items():
        with FlopCounterMode(display=False) as counter:
            objective(model, x, y, moment(2)).backward()
        counted[name] = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        model(x)
    forward = counter.get_total_flops()
    assert counted["eight"] - counted["one"] == 7 * 2 * forward


@pytest.mark.parametrize("name", ["adversarial", "noise", "gradient", "n-fgsm"])
def test_draws_do_not_depend_on_how_a_batch_is_cut(name: str) -> None:
    model, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), images()
    ALL[name](model, x, y, moment()).backward()
    joint = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    model.zero_grad()
    for begin in (0, 4):
        part = slice(begin, begin + 4)
        ALL[name](model, x[part], y[part], moment(8, part)).backward()
    for weight, expected in zip(model.parameters(), joint, strict=True):
        assert weight.grad is not None
        assert_close(weight.grad / 2, expected, rtol=1e-4, atol=1e-7)


def test_the_penalty_is_that_of_regularized_loss_with_ramps() -> None:
    model, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.GELU()), images()
    ramped = Gradient("linf", lam=2.0, h=0.3, h_start=0.1, h_ramp_epochs=3, ramp_epochs=6, order=2)
    out = ramped(model, x, y, moment(epoch=1.5))
    expected = regularized_loss(model, x, y, threat="linf", lam=0.5, h=0.2, order=2)
    assert_close(out.loss, expected.loss)
    assert_close(out.scalars["penalty"], expected.penalty)
    later = ramped(model, x, y, moment(epoch=9.0))
    assert_close(later.loss, regularized_loss(model, x, y, threat="linf", lam=2.0, h=0.3, order=2).loss)


def test_h_left_out_does_not_shrink_with_a_rising_radius() -> None:
    model, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.GELU()), images()
    out = Gradient("l2", eps=0.8, ramp_epochs=4)(model, x, y, moment(epoch=1.0))
    assert_close(out.loss, regularized_loss(model, x, y, eps=0.2, h=0.4).loss)
    assert plain(Gradient("l2", eps=0.8))["h"] == 0.4, "a run's config says what was done"
    assert plain(Gradient("l2", lam=0.1))["h"] == 0.01


def test_every_option_of_the_penalty_is_one_of_the_objective() -> None:
    """Whatever `regularized_loss` learns, recipes can say."""
    options = signature(regularized_loss).parameters.keys() - {"model", "x", "y", "criterion", "step", "output"}
    assert options <= {field.name for field in fields(Gradient)}
    model, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), images()
    for graphs in (1, 2):
        model.zero_grad()
        Gradient(lam=1.0, h=0.5, graphs=graphs)(model, x, y, moment()).backward()
        found = model[1].weight.grad
        model.zero_grad()
        regularized_loss(model, x, y, lam=1.0, h=0.5, graphs=graphs).loss.backward()
        assert_close(found, model[1].weight.grad)


def test_lazy_steps_report_what_they_did_not_measure_as_nan() -> None:
    model, (x, y) = net(), images()
    out = Gradient(eps=0.5, lazy=2)(model, x, y, moment(step=3))
    assert out.scalars["penalty"] == 0
    assert out.scalars["train_grad_norm"].isnan()


def test_jitter_gives_each_image_its_own_step() -> None:
    one_each = torch.zeros(8)
    drawn = moment().draws.sample("h", one_each, lambda like, source: like.uniform_(-1, 1, generator=source))
    assert drawn.shape == (8,)
    assert len(drawn.unique()) == 8


def test_jitter_by_step_is_the_penalty_with_that_h_at_the_price_of_a_fixed_one() -> None:
    model, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.GELU(), nn.Linear(8, 5)), images()
    drawn = moment().draws.number("h")
    assert -1 <= drawn < 1
    assert moment(share=slice(2, 4)).draws.number("h") == drawn, "micro-batches and processes share the step's h"
    jittered = Gradient(eps=0.5, h=0.1, h_jitter=0.5, jitter="step")
    expected = regularized_loss(model, x, y, eps=0.5, h=0.1 * (1 + 0.5 * drawn))
    assert_close(jittered(model, x, y, moment()).loss, expected.loss)

    def flops(objective: Objective) -> int:
        with FlopCounterMode(display=False) as counter:
            objective(model, x, y, moment()).backward()
        return int(counter.get_total_flops())

    Gradient(eps=0.5, h=0.01)(model, x, y, moment())  # what is tried at the first step and at a smaller h costs extra
    assert flops(jittered) == flops(Gradient(eps=0.5, h=0.1)) < flops(Gradient(eps=0.5, h=0.1, h_jitter=0.5))


def test_noise_alone_is_plain_training_on_noisy_images() -> None:
    model, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), images()
    noise = moment().draws.sample("noise", x, lambda like, source: like.normal_(generator=source))
    assert_close(Noise(0.25)(model, x, y, moment()).loss, cross_entropy(model(x + 0.25 * noise), y).mean())
    assert abs(noise.std().item() - 1) < 0.05


def test_label_smoothing_spreads_the_label() -> None:
    logits, y = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    log_p = logits.log_softmax(1)
    expected = -0.8 * log_p.gather(1, y[:, None]).squeeze(1) - 0.2 * log_p.mean(1)
    assert_close(smoothed_cross_entropy(0.2)(logits, y), expected)
    assert smoothed_cross_entropy(0) is cross_entropy


@pytest.mark.parametrize("name", ALL)
def test_label_smoothing_is_torchs_in_every_objective(name: str) -> None:
    """Where the loss is looked at and where it is trained on: crafting, penalties and the loss itself."""
    found = []
    for criterion in (
        smoothed_cross_entropy(0.3),
        nn.CrossEntropyLoss(reduction="none", label_smoothing=0.3),
        cross_entropy,
    ):
        torch.manual_seed(0)
        model, (x, y) = net(), images()
        out = ALL[name](model, x, y, moment(criterion=criterion))
        out.backward()
        found.append([out.loss.detach(), *(weight.grad for weight in model.parameters())])
    assert_close(found[0], found[1])
    assert not torch.equal(found[0][0], found[2][0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Pass either lam=, .*, or eps=, the strength in threat units"),
        ({"eps": 1.0, "lam": 1.0}, "Pass either lam=, .*, or eps=, the strength in threat units"),
        ({"eps": 1.0, "h": 0.0}, "h must be positive; got 0.0"),
        ({"eps": 1.0, "ramp_epochs": -1.0}, r"ramp_epochs must be at least 0; got -1.0\."),
        ({"eps": 1.0, "h_jitter": 1.0}, r"h_jitter must be at least 0 and below 1 \(a fraction of h\); got 1.0\."),
        ({"eps": 1.0, "jitter": "batch"}, "jitter must be one of 'image', 'step'; got 'batch'"),
        ({"eps": 1.0, "h_start": 0.1}, "A ramp of h needs both h_start"),
        ({"eps": 1.0, "h_start": -0.1, "h_ramp_epochs": 2.0}, "h_start must be positive; got -0.1"),
    ],
)
def test_impossible_penalties_are_refused_when_made(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Gradient(**options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sigma must be at least 0; got -1"):
        Noise(-1)
