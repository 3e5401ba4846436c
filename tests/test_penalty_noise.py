"""The penalty at a noisy base point, and the output slope: closed forms, N-FGSM, costs, statistics, draws."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from gradreg import GradientPenalty, regularized_loss
from gradreg.errors import ConfigError, DataError, ModelError
from gradreg.losses import cross_entropy
from gradreg.norms import threat
from gradreg.objectives import Draws, Gradient, Moment, NoisyStep

EPS = 0.1


def net(norm: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    middle: list[nn.Module] = [nn.BatchNorm2d(4)] if norm else []
    return nn.Sequential(nn.Conv2d(3, 4, 3), *middle, nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 5)).double()


def images(count: int = 8) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    x = torch.rand(count, 3, 8, 8, generator=source, dtype=torch.float64)
    return x, torch.randint(0, 5, (count,), generator=source)


def drawn(name: str, x: Tensor, radius: float = EPS) -> Tensor:
    return threat(name).sample(x, radius, torch.Generator().manual_seed(5))  # type: ignore[arg-type]


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("name", ["linf", "l2"])
def test_one_step_of_the_radius_from_noise_is_n_fgsm(name: str) -> None:
    """ℓ(u) + ε(ℓ(z) − ℓ(u))/h = ℓ(z) for h = ε: the weights' gradients are those of N-FGSM, to rounding."""
    x, y = images()
    model, twin = net(), net()
    moment = Moment(3, 1.5, Draws((0, 3), len(x), slice(len(x))))
    reference = NoisyStep(name, EPS, clip=False, noise=1.0)  # type: ignore[arg-type]
    start = moment.draws.sample("start", x, lambda like, source: threat(name).sample(like, EPS, source))  # type: ignore[arg-type]
    out = regularized_loss(model, x, y, threat=name, eps=EPS, h=EPS, noise=start)  # type: ignore[arg-type]
    expected = reference(twin, x, y, moment)
    assert_close(gradients(model, out.loss), gradients(twin, expected.loss), rtol=1e-9, atol=1e-12)
    assert bool((out.slope > 0).all())
    assert_close(out.loss.detach(), expected.loss.detach())


@pytest.mark.parametrize("how", [{"eps": EPS}, {"eps": EPS, "h": 0.05}, {"lam": 1.0}, {"lam": 1.0, "order": 2}])
def test_given_noise_is_the_loss_of_the_noisy_images(how: dict[str, Any]) -> None:
    x, y = images()
    n, model = drawn("l2", x, 0.5), net(norm=False)
    found = regularized_loss(model, x, y, noise=n, **how)
    # The noise inside of the model, since pixels outside of [0, 1] are refused as images.
    expected = regularized_loss(lambda z: model(z + n), x, y, **how)
    assert_close(found.loss.detach(), expected.loss.detach())
    assert_close(found.slope, expected.slope)
    assert_close(gradients(model, found.loss), gradients(model, expected.loss))


def test_a_fraction_of_noisy_images() -> None:
    x, y = images()
    out = regularized_loss(net(), x, y, eps=EPS, noise=EPS, fraction=0.5, step=4)
    assert int(out.slope.isnan().sum()) == 4


@pytest.mark.parametrize("name", ["linf", "l2", "l1"])
def test_on_affine_losses_the_slope_is_exact_at_every_base_point(name: str) -> None:
    """The dual norm of the one gradient there is, whatever was drawn: the slope is unbiased."""
    torch.manual_seed(1)
    w = torch.randn(2, 3 * 64, dtype=torch.float64)
    x, y = images()
    for seed in range(3):
        torch.manual_seed(seed)
        out = regularized_loss(
            lambda z: z.flatten(1) @ w.T,
            x,
            y % 2,
            threat=name,  # type: ignore[arg-type]
            eps=EPS,
            noise=0.3,
            criterion=lambda logits, y: logits.gather(1, y[:, None])[:, 0],
        )
        exact = threat(name).dual_norm(w[y % 2])  # type: ignore[arg-type]
        assert_close(out.slope, exact)
        assert_close(out.grad_norm, exact)


def test_noise_is_uniform_in_the_ball_and_drawn_as_dropout_draws() -> None:
    x = torch.full((4000, 2), 0.5, dtype=torch.float64)
    seen: list[Tensor] = []

    def model(z: Tensor) -> Tensor:
        seen.append(z.detach().clone())
        return z

    def first(seed: int) -> Tensor:
        seen.clear()
        torch.manual_seed(seed)
        regularized_loss(model, x, torch.zeros(len(x), dtype=torch.int64), threat="l2", eps=EPS, noise=0.2)
        return seen[0] - x

    n = first(0)
    radius = n.norm(dim=1)
    assert float(radius.max()) <= 0.2
    # Uniform in a disc: the squared radius is uniform, of mean r²/2 and deviation r²/√12 over √n.
    assert float(radius.square().mean()) == pytest.approx(0.02, abs=4 * 0.04 / 12**0.5 / 4000**0.5)
    assert float(n.mean(0).abs().max()) < 4 * 0.1 / 4000**0.5
    assert torch.equal(n, first(0)), "by the global stream, which a seed repeats"
    assert not torch.equal(n, first(1))


def test_statistics_of_clean_images() -> None:
    x, y = images()
    plain, clean, noisy = net(), net(), net()
    plain(x)
    n = drawn("linf", x, 0.5)
    out = regularized_loss(clean, x, y, eps=EPS, noise=n, statistics="clean")
    other = regularized_loss(noisy, x, y, eps=EPS, noise=n)
    assert_close(out.loss.detach(), other.loss.detach(), msg="the loss is the same, by statistics of the noisy batch")
    for name, buffer in plain.named_buffers():
        assert_close(clean.get_buffer(name), buffer)
    assert not torch.allclose(noisy[1].running_mean, plain[1].running_mean)  # type: ignore[arg-type]
    assert int(clean[1].num_batches_tracked) == 1  # type: ignore[arg-type]


def test_the_output_slope_on_a_linear_model() -> None:
    """f(u + hd) − f(u) = hWd, and its gradient is that of autograd through the same expression."""
    torch.manual_seed(2)
    w = torch.randn(5, 12, dtype=torch.float64, requires_grad=True)
    x, y = torch.rand(6, 12, dtype=torch.float64), torch.arange(6) % 5
    h, mu = 0.05, 3.0
    out = regularized_loss(lambda z: z @ w.T, x, y, threat="l2", eps=0.0, h=h, output_slope=mu)
    u = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(u @ w.T, y).sum(), u)
    d = threat("l2").ascent(gradient)
    change = (h * d @ w.T).square().mean(1)
    assert out.output_change is not None
    assert_close(out.output_change, change.detach())
    assert_close(out.penalty, mu * change.mean().detach())
    expected = torch.autograd.grad(cross_entropy(x @ w.T, y).mean() + mu * change.mean(), w)
    assert_close(torch.autograd.grad(out.loss, w), expected)


def test_the_output_slope_is_lazy_with_the_penalty() -> None:
    model, (x, y) = net(norm=False), images()
    penalty = GradientPenalty(threat="linf", eps=EPS, output_slope=1.0, lazy=2)
    first, second = penalty(model, x, y), penalty(model, x, y)
    once = regularized_loss(model, x, y, threat="linf", eps=EPS, output_slope=1.0)
    assert_close(first.penalty, 2 * once.penalty)
    assert float(second.penalty) == 0
    assert second.output_change is None


def test_an_objective_draws_the_same_noise_however_a_step_is_cut_up() -> None:
    x, y = images()
    model = net(norm=False)
    objective = Gradient(threat="linf", eps=EPS, h=EPS, noise=EPS, output_slope=0.5)
    whole = objective(model, x, y, Moment(3, 1.5, Draws((0, 3), 8, slice(8))))
    parts = [
        objective(model, x[share], y[share], Moment(3, 1.5, Draws((0, 3), 8, share)))
        for share in (slice(3), slice(3, 8))
    ]
    joint = (3 * parts[0].loss + 5 * parts[1].loss) / 8
    assert_close(joint, whole.loss)
    assert_close(gradients(model, joint), gradients(model, whole.loss))
    assert set(whole.scalars) >= {"negative_slopes", "penalty"}
    assert "noise within l∞ 0.1" in objective.describe()
    again = objective(model, x, y, Moment(3, 1.5, Draws((0, 3), 8, slice(8))))
    assert torch.equal(again.loss, whole.loss), "a resumed run draws what an uninterrupted one drew"
    other = objective(model, x, y, Moment(4, 1.5, Draws((0, 4), 8, slice(8))))
    assert not torch.equal(other.loss, whole.loss)


def test_negative_slopes_are_counted() -> None:
    """cos(9x) falls beyond its maximum: with an h that looks past it, every slope is negative."""
    x = torch.full((4, 1), 0.7 - 0.02, dtype=torch.float64)
    objective = Gradient(threat="linf", eps=EPS, h=0.5)
    moment = Moment(0, 0.0, Draws((0,), 4, slice(4)), criterion=lambda logits, y: (9 * logits[:, 0]).cos())
    found = objective(nn.Identity(), x, torch.zeros(4, dtype=torch.int64), moment)
    assert float(found.scalars["negative_slopes"]) == 1


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        ({"noise": -0.1}, ConfigError, "noise must be"),
        ({"noise": float("nan")}, ConfigError, "noise must be"),
        ({"noise": torch.zeros(3)}, DataError, r"noise must be a radius, or floats shaped as x, \(8, 3, 8, 8\)"),
        ({"noise": torch.zeros(8, 3, 8, 8, dtype=torch.int64)}, DataError, "noise must be a radius, or floats"),
        ({"statistics": "both"}, ConfigError, "statistics must be one of"),
        ({"output_slope": -1}, ConfigError, "output_slope must be"),
        ({"output_slope": 1.0, "order": 2}, ConfigError, "output_slope= is a forward difference"),
    ],
)
def test_what_means_nothing_is_refused(wrong: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        regularized_loss(net(), *images(), eps=EPS, **wrong)


def test_the_object_draws_its_noise_at_every_step_and_none_before() -> None:
    before = torch.get_rng_state()
    penalty = GradientPenalty(eps=EPS, noise=EPS)
    assert torch.equal(torch.get_rng_state(), before)
    model, (x, y) = net(norm=False), images()
    assert not torch.equal(penalty(model, x, y).loss, penalty(model, x, y).loss)
    with pytest.raises(ConfigError, match="noise must be a radius, drawn anew at every step"):
        GradientPenalty(eps=EPS, noise=torch.zeros(8, 3, 8, 8))


class Recomputing(nn.Module):
    """Parts are computed again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return found


def test_a_slope_with_checkpointing_is_refused_by_its_own_name() -> None:
    x, y = images()
    with pytest.raises(ModelError, match="use graphs=1 without output_slope"):
        regularized_loss(Recomputing(), x, y, eps=EPS, output_slope=0.5)
    regularized_loss(Recomputing(), x, y, eps=EPS, noise=EPS).loss.backward()


@pytest.mark.parametrize("noise", [1e3, torch.full((8, 3, 8, 8), 1e3), torch.full((8, 3, 8, 8), torch.nan)])
def test_noise_that_leaves_nothing_of_the_images_is_refused(noise: float | Tensor) -> None:
    x, y = images()
    with pytest.raises((ConfigError, DataError), match=r"noise must .* at most 100"):
        regularized_loss(net(), x, y, eps=EPS, h=EPS, noise=noise, threat="linf")


def test_noise_is_limited_in_units_of_its_norm() -> None:
    x, y = images()
    root = 192**0.5
    regularized_loss(net(), x, y, eps=EPS, h=EPS, noise=99 * root, threat="l2")
    with pytest.raises(ConfigError, match=r"noise must be at most 1386, which moves every pixel by 100; got 1399\.5"):
        regularized_loss(net(), x, y, eps=EPS, h=EPS, noise=101 * root, threat="l2")
