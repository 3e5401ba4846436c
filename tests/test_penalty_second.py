"""The second step of ascent: who takes it, where it leads, what it costs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from gradreg import GradientPenalty, regularized_loss
from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy
from gradreg.norms import threat
from gradreg.objectives import Draws, Gradient, Moment

EPS, H = 0.3, 0.2
ALWAYS = 1e9


def net(*between: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), *between, nn.GELU(), nn.Conv2d(16, 16, 3, padding=1), nn.GELU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 64, 5)).double()


def images(count: int = 8) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    x = torch.rand(count, 3, 8, 8, generator=source, dtype=torch.float64)
    return x, torch.randint(0, 5, (count,), generator=source)


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def gradient_at(model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(cross_entropy(model(leaf), y).sum(), leaf)
    return found


def by_hand(
    model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, name: str, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    """ℓ(x) + ε(ℓ(z) − ℓ(x))/h by autograd, with z the end of the one or the two steps; slopes, and who took two."""
    geometry: Any = threat(name)  # type: ignore[arg-type]
    g = gradient_at(model, x, y)
    move = H * geometry.ascent(g)
    clean, first = cross_entropy(model(x), y), cross_entropy(model(x + move), y)
    misled = (first - clean) / H < tau * geometry.dual_norm(g)
    second = geometry.retract(move + H * geometry.climb(gradient_at(model, x + move, y)), H)
    z = x + torch.where(misled[:, None, None, None], second, move)
    slopes = (cross_entropy(model(z), y) - clean) / H
    return (clean + EPS * slopes).mean(), slopes.detach(), misled


def between(model: nn.Module, x: Tensor, y: Tensor, name: str, count: int) -> float:
    """A threshold that `count` of the images miss."""
    if count in (0, len(x)):
        return ALWAYS if count else 0.0
    out = regularized_loss(model, x, y, threat=name, eps=EPS, h=H)  # type: ignore[arg-type]
    ratios = (out.slope / out.grad_norm).sort().values
    return float(ratios[count - 1 : count + 1].mean())


@pytest.mark.parametrize("name", ["linf", "l2"])
@pytest.mark.parametrize("graphs", [1, 2])
@pytest.mark.parametrize("count", [0, 3, 8])
def test_those_who_are_misled_go_on_and_the_others_stay(name: str, graphs: Any, count: int) -> None:
    model, (x, y) = net(), images()
    tau = between(model, x, y, name, count)
    expected, slopes, misled = by_hand(model, x, y, name, tau)
    assert int(misled.sum()) == count
    out = regularized_loss(model, x, y, threat=name, eps=EPS, h=H, second_step=tau, graphs=graphs)  # type: ignore[arg-type]
    assert_close(out.loss.detach(), expected.detach())
    assert_close(out.slope, slopes)
    assert_close(gradients(model, out.loss), gradients(model, expected))
    once = regularized_loss(model, x, y, threat=name, eps=EPS, h=H, graphs=graphs)  # type: ignore[arg-type]
    assert_close(out.first_slope, once.slope)
    assert once.first_slope is None
    if count == 0:
        assert torch.equal(out.loss, once.loss)
    else:
        assert float((out.slope - once.slope)[misled].mean()) > 0, "the second step climbs"


def test_on_a_quadratic_the_second_step_is_known() -> None:
    """ℓ = bx − x²/2 with h beyond the maximum: from z the gradient points back, and two steps end where they began."""
    x, y = torch.full((3, 1), 0.5, dtype=torch.float64), torch.zeros(3, dtype=torch.int64)
    b = torch.tensor([0.6, 0.9, 5.0], dtype=torch.float64)

    def loss(outputs: Tensor, _: Tensor) -> Tensor:
        return b[: len(outputs)] * outputs[:, 0] - outputs[:, 0].square() / 2

    out = regularized_loss(nn.Identity(), x, y, eps=0.1, h=0.4, second_step=0.6, criterion=loss, bn="train")
    assert_close(out.first_slope, torch.tensor([0.6 - 0.7, 0.9 - 0.7, 5.0 - 0.7], dtype=torch.float64))
    assert_close(out.grad_norm, torch.tensor([0.1, 0.4, 4.5], dtype=torch.float64))
    # The first and second are misled. The gradient at 0.9 is −0.3, so the first returns; at the second's it is 0.
    assert_close(out.slope, torch.tensor([0.0, 0.2, 4.3], dtype=torch.float64))


@pytest.mark.parametrize("how", [{"noise": "n"}, {"h": "each"}, {"lam": 1.0}, {"output_slope": 2.0}, {"bn": "frozen"}])
def test_no_image_depends_on_the_others(how: dict[str, Any]) -> None:
    """The loss and gradients of a batch are the means of those of its images alone, mixed or not."""
    x, y = images()
    model = net(nn.BatchNorm2d(16)) if "bn" in how else net()
    model(x)
    tau = between(net(), x, y, "linf", 4)
    source = torch.Generator().manual_seed(6)
    n = 0.1 * torch.rand(x.shape, generator=source, dtype=torch.float64)
    each = torch.linspace(0.1, 0.3, 8, dtype=torch.float64)

    def loss(rows: slice) -> Any:
        given: dict[str, Any] = {"threat": "linf", "eps": EPS, "h": H, "second_step": tau} | how
        given |= {"noise": n[rows]} if "noise" in how else {}
        given |= {"h": each[rows]} if "h" in how else {}
        given |= {"eps": None, "scale": "dual"} if "lam" in how else {}
        return regularized_loss(model, x[rows], y[rows], **given)

    whole = loss(slice(8))
    alone = [loss(slice(i, i + 1)) for i in range(8)]
    taken = whole.first_slope < tau * whole.grad_norm
    assert 0 < int(taken.sum()) < 8
    assert_close(whole.slope, torch.cat([each.slope for each in alone]))
    assert_close(whole.loss.detach(), torch.stack([each.loss.detach() for each in alone]).mean())
    joint = torch.stack([each.loss for each in alone]).mean()
    assert_close(gradients(model, whole.loss), gradients(model, joint))


@pytest.mark.parametrize("graphs", [1, 2])
@pytest.mark.parametrize("layer", [nn.BatchNorm2d(16), nn.Dropout(0.3)])
def test_where_images_cannot_be_told_apart_the_whole_batch_passes(layer: nn.Module, graphs: Any) -> None:
    """With batch statistics, or masks that are drawn for the whole batch."""
    (x, y), model, sizes = images(), net(layer), []

    def seeded(z: Tensor) -> Tensor:
        torch.manual_seed(5)
        sizes.append(len(z))
        found: Tensor = model(z)
        return found

    torch.manual_seed(5)
    tau = between(model, x, y, "linf", 3)
    model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    for threshold in (0.0, tau, ALWAYS):
        expected, slopes, misled = by_hand(seeded, x, y, "linf", threshold)
        assert int(misled.sum()) == {0.0: 0, tau: 3, ALWAYS: 8}[threshold]
        torch.manual_seed(5)
        out = regularized_loss(model, x, y, threat="linf", eps=EPS, h=H, second_step=threshold, graphs=graphs)
        assert_close(out.slope, slopes)
        assert_close(gradients(model, out.loss), gradients(model, expected))
    assert set(sizes) == {8}


def flops(how: dict[str, Any], layer: nn.Module | None = None) -> int:
    """Of a second step of training: the first one tries the model too."""
    model, (x, y) = net(*([layer] if layer else [])).float(), images()
    for _ in range(2):
        with FlopCounterMode(display=False) as counter:
            regularized_loss(model, x.float(), y, threat="linf", eps=EPS, h=H, **how).backward()
    return int(counter.get_total_flops())


def test_what_a_second_step_costs() -> None:
    """6F + 3F·share; 8F if all take it, as two steps for everybody do; 8F with batch statistics, whoever takes it."""
    model, (x, y) = net().float(), images()
    with FlopCounterMode(display=False) as counter:
        model(x.float())
    forward, once = counter.get_total_flops(), flops({})
    assert once / forward == pytest.approx(6, rel=0.1)  # less the first layer's gradient for the images

    def more(count: int) -> float:
        return float((flops({"second_step": between(model, x.float(), y, "linf", count)}) - once) / forward)

    first_layer = 2 * 8 * 64 * 3 * 9 * 16 / forward
    assert more(0) == pytest.approx(first_layer), "the gradient at z is made ready for"
    assert more(2) == pytest.approx(3 * 2 / 8 + first_layer * (1 - 2 / 8), abs=1e-3)
    assert more(4) == pytest.approx(3 * 4 / 8 + first_layer * (1 - 4 / 8), abs=1e-3)
    assert more(8) == pytest.approx(2, abs=1e-3)
    statistics = nn.BatchNorm2d(16)
    by_batch = [flops({"second_step": tau}, statistics) - flops({}, statistics) for tau in (0.0, ALWAYS)]
    assert by_batch == [2 * forward, 2 * forward]


def test_models_that_compute_parts_again_and_calls_without_gradients() -> None:
    model, (x, y) = net(), images()
    how: dict[str, Any] = {"threat": "linf", "eps": EPS, "h": H, "second_step": between(model, x, y, "linf", 3)}
    how |= {"alignment": True}
    expected = regularized_loss(model, x, y, **how)
    wanted = gradients(model, expected.loss)
    again = regularized_loss(lambda z: checkpoint(model, z, use_reentrant=False), x, y, **how)
    assert_close(gradients(model, again.loss), wanted)
    with torch.no_grad():
        alone = regularized_loss(model, x, y, **how)
    assert_close(alone.loss, expected.loss.detach())
    assert_close(alone.alignment, expected.alignment)
    assert expected.alignment is not None
    assert bool((expected.alignment > 0).all())


@pytest.mark.slow
def test_compiled_models_look_and_step_alike() -> None:
    x, y = images()
    tau = between(net(), x, y, "linf", 3)
    found = []
    for compiled in (False, True):
        model = net()
        called: Any = torch.compile(model, backend="aot_eager") if compiled else model
        for threshold, wanted in ((None, True), (0.0, True), (tau, True), (None, False), (tau, False)):
            with torch.set_grad_enabled(wanted):
                out = regularized_loss(
                    called, x, y, threat="linf", eps=EPS, h=H, second_step=threshold, alignment=True, omega=1
                )
            if wanted:
                out.backward()
            found.append([out.loss.detach(), out.slope, out.alignment, out.omega])
    assert_close(found[5:], found[:5])


def test_an_objective_logs_how_many_take_it() -> None:
    model, (x, y) = net(), images()
    tau = between(model, x, y, "linf", 3)
    objective = Gradient("linf", eps=EPS, h=H, second_step=tau)
    found = objective(model, x, y, Moment(0, 0.0, Draws((0,), 8, slice(8))))
    assert float(found.scalars["second_steps"]) == 3 / 8
    assert "a second step where the slope is below" in objective.describe()
    assert (
        "second_steps" not in Gradient("linf", eps=EPS)(model, x, y, Moment(0, 0.0, Draws((0,), 8, slice(8)))).scalars
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"second_step": -0.1}, "second_step must be at least 0"),
        ({"second_step": 0.5, "order": 2}, "second_step= goes on from x"),
        ({"second_step": 0.5, "method": "double-backprop"}, "second_step= goes on from x"),
    ],
)
def test_what_means_nothing_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        regularized_loss(net(), *images(), eps=0.1, **wrong)
    with pytest.raises(ConfigError, match=said):
        GradientPenalty(eps=0.1, **wrong)
