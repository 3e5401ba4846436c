"""The estimates of L and ω where both are known, what they refuse, and what they do not depend on."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.bounds import BoundsError, Regularity, bounds, estimate_regularity, violations
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError, DataError
from gradreg.norms import THREATS

EPS = [0.02, 0.05, 0.1, 0.2]


class Quadratic(nn.Module):
    """Logits (½aᵀHa + ⟨b, a⟩ − 1, 0) with a = x − ½: for label 1 the logit margin is the first of them."""

    def __init__(self, hessian: Tensor, b: Tensor) -> None:
        super().__init__()
        self.hessian, self.b = nn.Buffer(hessian), nn.Buffer(b)

    def forward(self, x: Tensor) -> Tensor:
        a = x.flatten(1) - 0.5
        value = 0.5 * ((a @ self.hessian) * a).sum(1) + a @ self.b - 1
        return torch.stack([value, torch.zeros_like(value)], 1)


@pytest.fixture
def quadratic() -> Quadratic:
    turn = torch.linalg.qr(torch.randn(48, 48, dtype=torch.float64))[0]
    values = torch.linspace(-1, 2, 48, dtype=torch.float64)
    return Quadratic(turn @ torch.diag(values) @ turn.T, 0.1 * torch.randn(48, dtype=torch.float64)).eval()


@pytest.fixture
def relu_net() -> nn.Module:
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 4)).double().eval()
    for weight in net.parameters():
        nn.init.normal_(weight, std=0.5)
    return net


def test_the_modulus_of_a_quadratic_is_half_its_curvature_times_the_radius_squared(
    quadratic: Quadratic, images: Tensor
) -> None:
    """ω(ε) = Cε²/2 and the root is known; "local" finds it, and random directions stay far below it."""
    labels = torch.ones(60, dtype=torch.int64)
    local = estimate_regularity(
        quadratic, (images, labels), method="local", eps=EPS, scores="logits", clip=False, steps=300, rivals=0, slack=0
    )
    exact = torch.tensor(EPS, dtype=torch.float64) ** 2
    assert_close(local.omega.mean(0), exact, rtol=0.03, atol=0)
    assert bool((local.omega <= exact + 1e-12).all())
    drawn = estimate_regularity(
        quadratic, (images, labels), method="paper", eps=EPS, scores="logits", clip=False, block_size=3
    )
    assert bool((drawn.omega < 0.7 * exact).all())

    found = bounds(quadratic, images, labels, local, envelope="linear")
    gap, slope = -found.margin, found.grad_norm
    root = (-slope + (slope**2 + 4 * gap).sqrt()) / 2
    inside = root < 0.2
    assert_close(found.omega[inside], root[inside], rtol=0.1, atol=0.01)
    assert torch.equal(found.censored, found.omega >= 0.2 - 1e-9)


@pytest.mark.parametrize("threat", list(THREATS))
def test_ascent_finds_more_than_random_directions_and_holds_where_they_fail(
    threat: str, relu_net: nn.Module, images: Tensor
) -> None:
    labels = relu_net(images).argmax(1)
    reach = {"l2": 0.3, "linf": 0.05, "l1": 1.0}.get(threat, 0.15 * (THREATS[threat].reach or 2.0))
    eps = torch.linspace(0, reach, 9)[1:].tolist()
    data = images, labels
    paper = estimate_regularity(relu_net, data, THREATS[threat], method="paper", eps=eps, block_size=3, fit="lmoments")
    ascent = estimate_regularity(relu_net, data, THREATS[threat], eps=eps, block_size=3)
    local = estimate_regularity(relu_net, data, THREATS[threat], method="local", eps=eps, rivals=0, slack=0)
    assert bool((ascent.omega > paper.omega).all())
    # The suprema are at least what was found around any image.
    assert float(ascent.lipschitz) >= float(local.lipschitz.max())
    assert bool((ascent.omega >= local.omega.amax(0)).all())
    assert paper.blocks == ascent.blocks == 20
    assert len(paper.shape) == 9
    assert bool((ascent.omega_upper >= ascent.omega).all())
    assert float(ascent.lipschitz_upper) >= float(ascent.lipschitz)
    # They obey ω(ε) ≤ ε(L + max‖∇ℓ‖) ≤ 2εL.
    assert bool((ascent.omega <= 2 * ascent.eps * float(ascent.lipschitz) + 1e-6).all())


def test_slack_looks_that_much_farther(quadratic: Quadratic, images: Tensor) -> None:
    """ω(ε) is what lies within (1 + slack)ε, here ((1 + slack)ε)²; so the bound falls by about that factor."""
    data = images[:10], torch.ones(10, dtype=torch.int64)
    given = {"method": "local", "eps": EPS, "scores": "logits", "clip": False, "steps": 300, "rivals": 0}
    local = estimate_regularity(quadratic, data, slack=0.5, **given)  # type: ignore[arg-type]
    assert_close(local.omega.mean(0), (1.5 * local.eps) ** 2, rtol=0.03, atol=0)
    assert_close(local.eps.tolist(), EPS)


class TwoWays(nn.Module):
    """Three classes: a rival that is near in rank and far away, and one that is last in rank and steep."""

    def forward(self, x: Tensor) -> Tensor:
        a = x.flatten(1)
        return torch.stack([torch.zeros_like(a[:, 0]), 0.5 * (a[:, 0] - 0.5) - 1, 9 * (a[:, 1] - 0.5) - 3], 1)


@pytest.mark.parametrize("threat", ["linf", "l2", "l1"])
def test_the_nearest_class_is_found_though_the_gradient_points_to_another(threat: str) -> None:
    """The margin is 1 to one class and 3 to the other, which a pixel raised by 1/3 reaches; the other is out of reach.

    Followed from the image, the gradient leads to the likelier class only; the bound then lies beyond the distance.
    """
    x, y = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    eps = torch.linspace(0, 0.45, 31)[1:].tolist()
    radii = {}
    for rivals in (0, 2):
        known = estimate_regularity(
            TwoWays().eval(), (x, y), THREATS[threat], method="local", eps=eps, scores="logits", rivals=rivals, slack=0
        )
        radii[rivals] = float(bounds(TwoWays().eval(), x, y, known).omega)
    assert radii[0] > 1 / 3 + 0.01
    assert 1 / 3 - 0.05 < radii[2] <= 1 / 3 + 1e-6


def test_the_local_bound_is_below_what_projected_gradient_descent_finds(relu_net: nn.Module, images: Tensor) -> None:
    labels = relu_net(images).argmax(1)
    local = estimate_regularity(relu_net, (images, labels), method="local", eps=torch.linspace(0, 0.8, 33)[1:].tolist())
    found = bounds(relu_net, images, labels, local)
    distance = torch.full((60,), torch.inf, dtype=torch.float64)
    model = Classifier(relu_net)
    v = torch.zeros_like(images)
    for step in range(400):
        value, gradient = model.loss_and_gradient(images + v, labels, lambda logits, y: _logit_margin(logits, y))
        size = v.flatten(1).norm(dim=1)
        distance = torch.where((value > 0) & (size < distance), size, distance)
        radius = torch.where(value > 0, 0.97 * size, 1.03 * size + 1e-3)
        v = v + 0.05 * (1 - step / 400) * THREATS["l2"].ascent(gradient)
        v = (images + THREATS["l2"].project(v, radius)).clamp(0, 1) - images
    checked = violations(found.best, distance)
    assert checked.rate <= 0.05
    assert checked.tightness > 0.6


def _logit_margin(logits: Tensor, y: Tensor) -> Tensor:
    from gradreg.losses import margin

    return margin(logits, y)


def test_nothing_depends_on_batch_size_or_order_and_the_global_stream_is_left_alone(
    relu_net: nn.Module, images: Tensor
) -> None:
    labels = torch.arange(60) % 4
    before = torch.get_rng_state()
    one = estimate_regularity(relu_net, (images, labels), method="paper", eps=EPS, block_size=3, samples=2)
    shuffled = torch.randperm(60, generator=torch.Generator().manual_seed(5))
    loader = [(images[rows], labels[rows]) for rows in shuffled.view(6, 10)]
    other = estimate_regularity(relu_net, loader, method="paper", eps=EPS, block_size=3, samples=2, batch_size=7)
    assert_close(one.omega, other.omega)
    assert_close(one.lipschitz, other.lipschitz)
    seeded = estimate_regularity(relu_net, (images, labels), method="paper", eps=EPS, block_size=3, samples=2, seed=1)
    assert not torch.equal(one.omega, seeded.omega)
    locally = [
        estimate_regularity(
            relu_net, (images, labels), method="local", eps=EPS, steps=2, restarts=2, batch_size=size
        ).omega
        for size in (60, 7)
    ]
    assert_close(*locally)
    assert torch.equal(before, torch.get_rng_state())


def test_one_heavy_tail_does_not_spoil_the_curve(monkeypatch: pytest.MonkeyPatch, linear: nn.Module) -> None:
    """certify.md §1.6: the fit at one radius exceeds everything; the cap ε(L + ‖∇ℓ‖_*) holds it back."""
    images, labels = torch.rand(60, 3, 4, 4, dtype=torch.float64), torch.arange(60) % 4

    def climb(around: object, eps: Tensor, *_: object) -> tuple[Tensor, Tensor]:
        errors = 0.01 * eps * torch.rand(60, len(eps), generator=torch.Generator().manual_seed(0))
        errors[:, 0] = 4e-4 * (60 / (torch.arange(60) + 1)) ** 0.8
        return errors, torch.full((60,), 0.3)

    monkeypatch.setattr(import_module("gradreg.bounds.estimation"), "climb_error", climb)
    known = estimate_regularity(linear, (images, labels), eps=EPS, block_size=3, lipschitz_steps=0)
    gradients = bounds(linear, images, labels, replace(known, keys=torch.zeros(0, dtype=torch.int64))).grad_norm
    cap = known.eps * (float(known.lipschitz) + float(gradients.max()))
    assert_close(known.omega, cap[0].expand(len(EPS)))
    assert any(flag.startswith("omega[0.02]") for flag in known.flags)


def test_progress_is_told(linear: nn.Module, images: Tensor) -> None:
    told: list[tuple[int, int]] = []
    estimate_regularity(
        linear, (images, torch.arange(60) % 4), method="paper", eps=EPS, block_size=3, samples=1, batch_size=25,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(25, 60), (50, 60), (60, 60)]


def test_top_k_margins_are_larger_gaps(relu_net: nn.Module, images: Tensor) -> None:
    labels = relu_net(images).argmax(1)
    known = estimate_regularity(relu_net, (images[:40], labels[:40]), topk=2, eps=EPS, block_size=2, steps=2)
    assert known.topk == 2
    found = bounds(relu_net, images[40:], labels[40:], known)
    probabilities = relu_net(images[40:]).softmax(1)
    second = probabilities.topk(3).values[:, 2] - probabilities.amax(1)
    assert_close(found.margin, second.detach())


def test_estimation_images_are_not_the_evaluated_ones(relu_net: nn.Module, images: Tensor, tmp_path: Path) -> None:
    labels = torch.arange(60) % 4
    known = estimate_regularity(relu_net, (images, labels), eps=EPS, block_size=3, steps=2)
    with pytest.raises(DataError, match="60 of 60 images were used to estimate"):
        bounds(relu_net, images, labels, known)
    local = estimate_regularity(relu_net, (images, labels), method="local", eps=EPS, steps=2)
    local.save(tmp_path / "local.safetensors")
    again = Regularity.load(tmp_path / "local.safetensors")
    assert_close(bounds(relu_net, images, labels, again).omega, bounds(relu_net, images, labels, local).omega)
    with pytest.raises(DataError, match="only for the images it was estimated on, in their order"):
        bounds(relu_net, images.flip(0), labels, local)


class Staircase(nn.Module):
    """Quantises its input, so that gradients are zero and CLEVER infinite (Goodfellow 2018)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        stairs = (x * 8).round() / 8
        return self.inner(torch.where(x.flatten(1)[:, 0].view(-1, 1, 1, 1) > 0.5, stairs, x))  # type: ignore[no-any-return]


def test_zero_and_infinite_gradients_are_refused_with_the_images(linear: nn.Module, images: Tensor) -> None:
    labels = torch.arange(60) % 4
    images = images.where((torch.arange(60) % 2 == 0).view(-1, 1, 1, 1) | (images < 0.5), 0.4)
    images[:, 0, 0, 0] = 0.4
    images[[3, 41], 0, 0, 0] = 0.6
    with pytest.raises(
        BoundsError, match=r"2 of 60 calibration images have a gradient of exactly zero.*\(images 3, 41\)"
    ):
        estimate_regularity(Staircase(linear).eval(), (images, labels), eps=EPS, block_size=3)

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return linear(x.sub(x.detach()).abs().sqrt() + x)  # type: ignore[no-any-return]

    with pytest.raises(BoundsError, match="60 of 60 calibration images have a gradient that is not finite"):
        estimate_regularity(Broken().eval(), (images, labels), method="local", eps=EPS)

    images[7, 0, 0, 0] = 0.99

    def cracked(x: Tensor) -> Tensor:
        corner = x[:, 0, 0, 0]
        return linear(x) / ((corner < 0.9) | ((corner - 0.99).abs() < 1e-9))[:, None]  # type: ignore[no-any-return]

    for method in ("ascent", "local"):
        with pytest.raises(BoundsError, match=r"1 of 60 .* losses around them that are not finite.*\(image 7\)"):
            estimate_regularity(cracked, (images, labels), method=method, eps=EPS, block_size=3)


def test_bad_input_is_refused_in_one_sentence(linear: nn.Module, images: Tensor) -> None:
    labels = torch.arange(60) % 4
    with pytest.raises(BoundsError, match="60 images make 1 blocks of 32"):
        estimate_regularity(linear, (images, labels))
    with pytest.raises(DataError, match="only 2 of the model's 4 labels"):
        estimate_regularity(linear, (images, labels % 2), block_size=3)
    with pytest.raises(ConfigError, match=r"method must be .* got 'guess'"):
        estimate_regularity(linear, (images, labels), method="guess")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"scores must be .* got 'odds'"):
        estimate_regularity(linear, (images, labels), scores="odds")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ascending order"):
        estimate_regularity(linear, (images, labels), eps=[0.2, 0.1])
    with pytest.raises(ConfigError, match="steps must be at least 1; got 0"):
        estimate_regularity(linear, (images, labels), steps=0)
    with pytest.raises(ConfigError, match=r"slack must be .* got -0\.1"):
        estimate_regularity(linear, (images, labels), method="local", slack=-0.1)
    with pytest.raises(ConfigError, match="batch_size must be at least 1; got 0"):
        estimate_regularity(linear, (images, labels), block_size=3, batch_size=0)
    with pytest.raises(DataError, match="holds no images"):
        estimate_regularity(linear, [])
    with pytest.raises(DataError, match="got a Tensor"):
        estimate_regularity(linear, [images])
    with pytest.raises(ConfigError, match=r"threat must be one of .*; got 'l3'"):
        estimate_regularity(linear, (images, labels), "l3")  # type: ignore[arg-type]
