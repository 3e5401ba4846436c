"""Objectives that remember: a universal prior, and starts that tell the label, by their formulas on linear models."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from gradreg.data import Images
from gradreg.errors import ConfigError, ModelError
from gradreg.norms import threat
from gradreg.objectives import Adversarial, Draws, Free, LabelStart, Moment, Objective, PriorGuided
from gradreg.objectives.label_start import jensen_shannon
from gradreg.training import fit

EPS = 0.05


def linear() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).double()


def images(count: int = 6) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(5)
    x = 0.3 + 0.4 * torch.rand(count, 3, 2, 2, generator=source, dtype=torch.float64)
    return x, torch.randint(0, 4, (count,), generator=source)


def moment(step: int = 0, memory: dict[str, Tensor] | None = None, **changes: object) -> Moment:
    at = Moment(step, step / 10, Draws((0, step), 6, slice(6)), memory={} if memory is None else memory)
    return replace(at, **changes)  # type: ignore[arg-type]


def gradient_at(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(F.cross_entropy(model(leaf), y, reduction="sum"), leaf)
    return found


def seen_by(model: nn.Module, objective: Objective, at: Moment) -> tuple[list[Tensor], Any]:
    """The images of every pass, and the outcome."""
    seen: list[Tensor] = []
    hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    outcome = objective(model, *images(), at)
    hook.remove()
    return seen, outcome


@pytest.mark.parametrize("name", ["linf", "l2"])
def test_a_prior_by_formula(name: str) -> None:
    """The start, the step, both terms of the loss, and how the prior goes on, over three steps."""
    model, (x, y), memory = linear(), images(), dict[str, Tensor]()
    geometry: Any = threat(name)  # type: ignore[arg-type]
    objective = PriorGuided(name, EPS, weight=3.0)  # type: ignore[arg-type]
    length, momentum, prior = 1.25 * EPS, torch.zeros(1, 3, 2, 2, dtype=torch.float64), None
    for step in range(4):
        (u, z), outcome = seen_by(model, objective, moment(step, memory))
        if prior is None:
            prior = memory["prior"]
            assert_close(geometry.norm(prior), torch.full((1,), length, dtype=torch.float64))
        assert_close(u, x + geometry.retract(prior, EPS))
        g = gradient_at(model, u, y)
        assert_close(z, x + geometry.retract(u + EPS * geometry.ascent(g) - x, EPS))
        expected = F.cross_entropy(model(z), y) + 3.0 * F.mse_loss(model(z), model(u))
        assert_close(outcome.loss, expected)
        momentum = g.mean(0, keepdim=True) / g.abs().sum() + 0.3 * momentum
        prior = geometry.retract(prior + length * geometry.ascent(momentum), length)


def test_a_start_of_the_label_by_formula() -> None:
    """Without noise the start is the sign of the gradient at grey of the own class, or its opposite."""
    model, (x, y), memory = linear(), images(), dict[str, Tensor]()
    objective = LabelStart(EPS, smoothing=0.0, fresh_least=0, fresh_most=0, weight=2.0, weight_epochs=1.0)
    grey = torch.full((4, 3, 2, 2), 0.5, dtype=torch.float64)
    signs = gradient_at(model, grey, torch.arange(4)).sign()
    coins = set()
    for step in range(6):
        at = moment(step, memory, epoch=0.5)
        passes, outcome = seen_by(model, objective, at)
        u, z = passes[-2:]
        assert len(passes) == (4 if step == 0 else 2), "one image and one per class look for the signs"
        coin = 1 if at.draws.number("coin") < 0 else -1
        coins.add(coin)
        assert_close(u, x + coin * EPS * signs[y])
        assert_close(z, x + (u - x + EPS * gradient_at(model, u, y).sign()).clamp(-EPS, EPS))
        p, q = model(u).softmax(1), model(z).softmax(1)
        m = (p + q) / 2
        js = ((p * (p / m).log()).sum(1) + (q * (q / m).log()).sum(1)).mean() / 2
        assert_close(outcome.loss, F.cross_entropy(model(z), y) + 2.0 * 0.5 * js)
    assert coins == {1, -1}
    far, _ = seen_by(model, replace(objective, project=False), moment(1, memory))
    assert_close(far[-1], far[-2] + EPS * gradient_at(model, far[-2], y).sign())


def test_the_signs_are_looked_for_again_every_so_many_steps() -> None:
    model, memory = linear(), dict[str, Tensor]()
    objective = LabelStart(EPS, every=3)
    looked = []
    for step in range(7):
        with torch.no_grad():
            next(model.parameters()).neg_()
        looked.append(len(seen_by(model, objective, moment(step, memory))[0]) == 4)
    assert looked == [True, False, False, True, False, False, True]


def test_fresh_pixels_are_noise_and_the_others_are_signs() -> None:
    model, (x, _) = linear(), images()
    objective = LabelStart(EPS, fresh_least=0.3, fresh_most=0.6, noise=2.0)
    shares = []
    for step in range(40):
        start = (seen_by(model, objective, moment(step))[0][-2] - x) / EPS
        shares.append(float((start.abs() - 1 > 1e-9).double().mean() + (start.abs() - 1 < -1e-9).double().mean()))
        assert float(start.abs().max()) <= 2
    assert 0.4 < sum(shares) / 40 < 0.5
    assert max(shares) - min(shares) > 0.2


def test_smoothed_labels_are_distributions_with_random_rests() -> None:
    _, y = images()
    targets = LabelStart(smoothing=0.6)._smoothed(y, 4, torch.zeros(6, 1, dtype=torch.float64), moment())
    assert_close(targets.sum(1), torch.ones(6, dtype=torch.float64))
    assert_close(targets.gather(1, y[:, None])[:, 0], torch.full((6,), 0.4, dtype=torch.float64))
    assert len(targets.unique()) > 12


def test_the_divergence_is_finite_symmetric_and_at_most_log_2() -> None:
    a, b = torch.tensor([[500.0, -500.0], [1.0, 0.0]]), torch.tensor([[-500.0, 500.0], [1.0, 0.0]])
    assert_close(jensen_shannon(a, b), torch.tensor([2.0, 1.0]).log())
    assert_close(jensen_shannon(a, b), jensen_shannon(b, a))
    assert_close(jensen_shannon(a, a), torch.zeros(2))


@pytest.mark.parametrize("objective", [PriorGuided(eps=EPS), LabelStart(EPS, every=100)])
def test_a_step_costs_seven_forwards(objective: Objective) -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten())
    x, y, memory = torch.rand(8, 8, 4, 4), torch.arange(8), dict[str, Tensor]()
    for step in (1, 2):
        at = Moment(step, 0.5, Draws((0, step), 8, slice(8)), memory=memory)
        with FlopCounterMode(display=False) as counter:
            objective(model, x, y, at).backward()
    total = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        model(x)
    layer = counter.get_total_flops() / 2
    assert total == 7 * counter.get_total_flops() - layer, "the first layer's gradient at the end is not needed"


@pytest.mark.parametrize("name", ["linf", "l2"])
def test_free_steps_by_formula(name: str) -> None:
    """A batch serves three updates, each backward moves the perturbation, and the next batch goes on with it."""
    model, (x, y), memory = linear(), images(), dict[str, Tensor]()
    geometry: Any = threat(name)  # type: ignore[arg-type]
    objective = Free(name, EPS, replays=3)  # type: ignore[arg-type]
    batches = [((x + shift / 20).clamp(0, 1), (y + shift) % 4) for shift in range(6)]
    delta = torch.zeros_like(x)
    for step, (now, labels) in enumerate(batches):
        outcome = objective(model, now, labels, moment(step, memory))
        served, expected = batches[3 * (step // 3)]
        point = (served + delta).clamp(0, 1)
        assert_close(outcome.loss, F.cross_entropy(model(point), expected))
        assert outcome.targets is not None
        assert torch.equal(outcome.targets, expected)
        model.zero_grad()
        outcome.backward()
        delta = geometry.retract(delta + EPS * geometry.climb(gradient_at(model, point, expected)), EPS)
        assert_close(memory["own_perturbation_0"], delta)
    assert float(geometry.norm(delta).min()) == pytest.approx(EPS)


def test_free_costs_what_plain_training_does() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten())
    x, y = torch.rand(8, 8, 4, 4), torch.arange(8)
    with FlopCounterMode(display=False) as counter:
        model(x)
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        Free(eps=EPS)(model, x, y, Moment(0, 0.0, Draws((0,), 8, slice(8)))).backward()
    assert counter.get_total_flops() == 3 * forward


@pytest.mark.slow
def test_compiled_models_take_the_same_steps() -> None:
    """Also where an earlier backward of theirs kept no graph, after which they refuse to be differentiated twice."""
    x, y = images()
    found: list[list[Any]] = [[], []]
    for compiled in (False, True):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 4)).double()
        called: Any = torch.compile(model, backend="aot_eager") if compiled else model
        called(x.clone().requires_grad_()).sum().backward()
        for objective in (PriorGuided(eps=EPS), LabelStart(EPS), Free(eps=EPS), Adversarial(steps=2)):
            memory: dict[str, Tensor] = {}
            for step in range(2):
                model.zero_grad()
                objective(called, x, y, moment(step, memory)).backward()
            found[compiled] += [weight.grad for weight in model.parameters()]
    assert_close(found[1], found[0])


class _StoppedError(Exception):
    pass


@pytest.mark.parametrize(
    "objective", [PriorGuided(eps=EPS), LabelStart(EPS, every=4, weight_epochs=2.0), Free(eps=EPS, replays=3)]
)
def test_a_resumed_run_remembers(objective: Objective, tmp_path: Path) -> None:
    x, y = images()
    pixels = (255 * x.float().repeat(4, 1, 1, 1)).byte()
    data = (Images(pixels, y.repeat(4), tuple("abcd")),) * 2
    how: dict[str, Any] = {"epochs": 2, "batch_size": 6, "save_minutes": 0, "accumulate": 2}

    def stop(at: Any) -> None:
        if at.step == 6:
            raise _StoppedError

    whole, cut = linear().float(), linear().float()
    expected = fit(whole, data, objective, run=tmp_path / "whole", **how).metrics
    with pytest.raises(_StoppedError):
        fit(linear().float(), data, objective, run=tmp_path / "cut", on_step=stop, **how)
    found = fit(cut, data, objective, run=tmp_path / "cut", resume=True, **how).metrics
    assert [row["loss"] for row in found] == [row["loss"] for row in expected]
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), cut.parameters(), strict=True))


def test_images_of_another_size_begin_anew() -> None:
    """As in a phase of a run at another resolution."""
    small, large = torch.rand(4, 3, 2, 2), torch.rand(4, 3, 4, 4)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    for objective in (PriorGuided(eps=EPS), LabelStart(EPS)):
        memory: dict[str, Tensor] = {}
        for step, x in enumerate((small, large, small), 1):
            at = Moment(step, 0.1, Draws((0, step), 4, slice(4)), memory=memory)
            assert objective(model, x, torch.arange(4), at).loss.isfinite()


def test_what_cannot_be_done_is_refused() -> None:
    x, y = images()
    with pytest.raises(ConfigError, match="it needs one label per image"):
        LabelStart()(linear(), x, F.one_hot(y, 4).double(), moment())
    with pytest.raises(ConfigError, match="needs targets that are one tensor"):
        Free()(linear(), x, {"labels": y}, moment(criterion=lambda logits, y: logits.sum(1)))
    with pytest.raises(ConfigError, match=r"fresh_least must not exceed fresh_most = 0.2; got 0.4"):
        LabelStart(fresh_least=0.4, fresh_most=0.2)
    inner = nn.Sequential(nn.BatchNorm2d(3), linear().float())

    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return found

    with pytest.raises(ModelError, match="objectives with two ends leave activation checkpointing"):
        PriorGuided()(Again(), x.float(), y, moment())
