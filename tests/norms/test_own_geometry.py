"""Norms without a short name: duality, balls and what attacks ask for, each against an oracle."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.testing import assert_close

from gradreg import ConfigError
from gradreg.norms import Mahalanobis, Pixelwise, Threat, Weighted, check, threat
from gradreg.norms.tensors import inner
from own_norms import SHAPE, SumOfChannels, ThreeHalves, matrix, own_norms, weights

# Its stubs ask for arrays of one axis, which torch's are not declared as.
SOLVE: Any = minimize
NORMS = own_norms()
each = pytest.mark.parametrize("t", NORMS.values(), ids=NORMS)


def draw(count: int, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=generator(seed), dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@each
def test_the_methods_belong_together(t: Threat) -> None:
    """All that `check` asks of a user's norm, in single and double precision."""
    for dtype in (torch.float32, torch.float64):
        check(t, torch.zeros(1, *SHAPE, dtype=dtype))


@each
def test_hoelder_is_tight_at_the_direction(t: Threat) -> None:
    g = draw(5)
    g[1] *= 1e-20
    g[2] = 0
    g[3, 0] = 0
    d = t.ascent(g)
    assert_close(inner(g, d), t.dual_norm(g), rtol=1e-9, atol=0)
    assert_close(t.norm(d), torch.tensor([1.0, 1, 0, 1, 1], dtype=torch.float64), rtol=1e-9, atol=0)
    assert (inner(g, draw(5, seed=1)).abs() <= t.dual_norm(g) * t.norm(draw(5, seed=1)) * (1 + 1e-12)).all()


@each
def test_the_dual_by_maximisation(t: Threat) -> None:
    """The projection of a far point along g is where ⟨g, v⟩ is largest in the ball: it knows nothing of the dual."""
    g = draw(4)
    highest = t.project(1e6 * g, 1.0)
    assert_close(inner(g, highest), t.dual_norm(g), rtol=1e-4, atol=0)


@each
def test_projection_is_the_nearest_point(t: Threat) -> None:
    """The largest ⟨v − p, z⟩ in the ball is r‖v − p‖_*; it is reached at p, the nearest point, and only there."""
    v = draw(6)
    radius = t.norm(v) * torch.tensor([0.9, 0.5, 0.1, 0.01, 0.0, 1.5], dtype=torch.float64)
    p = t.project(v, radius)
    assert (t.norm(p) <= radius * (1 + 1e-9)).all()
    gap = radius * t.dual_norm(v - p) - inner(v - p, p)
    assert (gap.abs() <= 1e-9 * inner(v, v)).all()
    assert_close(p[4], torch.zeros_like(p[4]))
    assert_close(p[5], v[5], rtol=1e-12, atol=1e-12)
    assert_close(t.project(v.float(), radius.float()).double(), p, rtol=1e-4, atol=1e-4)


def slsqp(v: np.ndarray, inside: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The z nearest to v with inside(z) ≥ 0, by a solver that knows nothing of norms."""
    constraint = {"type": "ineq", "fun": inside}
    found = SOLVE(
        lambda z: ((z - v) ** 2).sum() / 2, v / 100, jac=lambda z: z - v, constraints=[constraint], method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )  # fmt: skip
    # 8: no step lowers the objective any more, which is as good as converged; the comparison shows it.
    assert found.status in (0, 8), found.message
    return np.asarray(found.x)


def test_projections_by_a_general_solver() -> None:
    """Small images, since the solver's work grows with the cube of their pixels."""
    shape = (2, 2, 2)
    w, M = weights(shape).double(), matrix(8).numpy()
    flat = w.numpy().ravel()
    smooth: dict[str, tuple[Threat, Callable[[np.ndarray, float], np.ndarray]]] = {
        "weighted l2": (Weighted("l2", w), lambda z, r: r**2 - ((flat * z) ** 2).sum()),
        "mahalanobis": (Mahalanobis(M), lambda z, r: r**2 - z @ M @ z),
        "pixelwise": (Pixelwise(), lambda z, r: r**2 - (z.reshape(2, 4) ** 2).sum(0)),
        "weighted pixels": (Weighted(Pixelwise(), w), lambda z, r: r**2 - ((flat * z).reshape(2, 4) ** 2).sum(0)),
        "weighted linf": (Weighted("linf", w), lambda z, r: r**2 - (flat * z) ** 2),
        "three halves": (ThreeHalves(), lambda z, r: r**1.5 - (np.abs(z) ** 1.5).sum()),
        "weighted own": (Weighted(ThreeHalves(), w), lambda z, r: r**1.5 - (np.abs(flat * z) ** 1.5).sum()),
    }
    for seed in range(3):
        v = draw(1, shape, seed)
        for name, (t, room) in smooth.items():
            radius = 0.4 * float(t.norm(v))
            exact = slsqp(v.numpy().ravel(), lambda z, room=room, radius=radius: np.atleast_1d(room(z, radius)))  # type: ignore[misc]
            found = t.project(v, radius).numpy().ravel()
            np.testing.assert_allclose(found, exact, atol=2e-5, err_msg=name)


def test_a_weighted_l1_projection_by_a_general_solver() -> None:
    """|z| as a sum of two variables that are not negative makes the problem smooth."""
    shape = (1, 2, 3)
    w, v = weights(shape).double(), draw(1, shape)
    t = Weighted("l1", w)
    radius, flat, target = 0.4 * float(t.norm(v)), w.numpy().ravel(), v.numpy().ravel()

    def distance(parts: np.ndarray) -> float:
        return float(((parts[:6] - parts[6:] - target) ** 2).sum())

    constraint = {"type": "ineq", "fun": lambda parts: radius - flat @ (parts[:6] + parts[6:])}
    found = SOLVE(
        distance, np.full(12, 0.01), bounds=[(0, None)] * 12, constraints=[constraint], method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-15},
    )  # fmt: skip
    np.testing.assert_allclose(t.project(v, radius).numpy().ravel(), found.x[:6] - found.x[6:], atol=1e-5)


@pytest.mark.parametrize("name", list(own_norms((3, 1, 1))))
def test_samples_are_uniform_in_the_ball(name: str) -> None:
    """Against points of a box around the ball, of which those outside are rejected; three dimensions."""
    t = own_norms((3, 1, 1))[name]
    drawn = t.sample(torch.empty(20_000, 3, 1, 1, dtype=torch.float64), 2.0, generator()).flatten(1)
    half = 2 * t.dual_norm(torch.eye(3, dtype=torch.float64).view(3, 3, 1, 1))
    box = (2 * torch.rand(200_000, 3, generator=generator(1), dtype=torch.float64) - 1) * half
    kept = box[t.norm(box.view(-1, 3, 1, 1)) <= 2]
    assert len(kept) > 5000
    second = drawn.T @ drawn / len(drawn)
    scale = half[:, None] * half
    assert_close(second / scale, kept.T @ kept / len(kept) / scale, atol=0.012, rtol=0)
    depth = (t.norm(drawn.view(-1, 3, 1, 1)) / 2) ** 3
    assert_close(depth.sort().values, torch.linspace(0, 1, len(depth), dtype=torch.float64), atol=0.015, rtol=0)
    surface = t.sample_surface(torch.empty(20_000, 3, 1, 1, dtype=torch.float64), 2.0, generator(2)).flatten(1)
    assert_close(t.norm(surface.view(-1, 3, 1, 1)), torch.full((20_000,), 2.0, dtype=torch.float64))
    # The cone measure: as points of the ball, pushed to the surface.
    pushed = 2 * kept / t.norm(kept.view(-1, 3, 1, 1))[:, None]
    assert_close(surface.T @ surface / 20_000 / scale, pushed.T @ pushed / len(pushed) / scale, atol=0.015, rtol=0)


@each
def test_the_nearest_point_across_a_plane_in_a_box(t: Threat) -> None:
    """Without walls it is ascent times need over the dual norm; with walls it stays in the box and gets across."""
    normal, need = draw(6), torch.linspace(0.1, 2, 6, dtype=torch.float64)
    wide = torch.full_like(normal, 1e4)
    across = t.nearest(normal, need, -wide, wide)
    assert_close(inner(normal, across), need)
    assert_close(t.norm(across), need / t.dual_norm(normal))
    narrow = torch.full_like(normal, 0.05)
    within = t.nearest(normal, need, -narrow, narrow)
    assert (within.abs() <= 0.05 + 1e-12).all()
    reachable = 0.05 * normal.flatten(1).abs().sum(1)
    assert (inner(normal, within) >= 0.999 * torch.minimum(need, reachable)).all()
    assert not t.nearest(torch.zeros_like(normal), need, -narrow, narrow).any()


def test_weights_of_one_change_nothing() -> None:
    v, radius = draw(4), torch.tensor([0.1, 0.5, 1.0, 2.0], dtype=torch.float64)
    for name in ("l2", "linf", "l1"):
        plain, same = threat(name), Weighted(name, torch.ones(()))
        for method in ("norm", "dual_norm", "ascent", "pull", "climb"):
            assert_close(getattr(same, method)(v), getattr(plain, method)(v))
        assert_close(same.project(v, radius), plain.project(v, radius))
        for method in ("sample", "sample_surface"):
            drawn = getattr(same, method)(v, radius, generator())
            assert_close(drawn, getattr(plain, method)(v, radius, generator()))


def test_a_matrix_of_identity_is_l2_and_a_diagonal_one_is_weighted_l2() -> None:
    v = draw(3)
    assert_close(Mahalanobis(torch.eye(48)).norm(v), threat("l2").norm(v))
    w = weights().double()
    pair = Mahalanobis(w.flatten().square().diag()), Weighted("l2", w)
    for method in ("norm", "dual_norm", "ascent"):
        assert_close(*(getattr(t, method)(v) for t in pair))
    assert_close(*(t.project(v, 0.7) for t in pair))


def test_a_covariance_is_what_the_dual_is_measured_by() -> None:
    """Roth et al. penalise gᵀΣg; the attacker's norm is then √(vᵀΣ⁻¹v)."""
    covariance, g = matrix(48), draw(3)
    t = Mahalanobis.of_covariance(covariance)
    flat = g.flatten(1)
    assert_close(t.dual_norm(g), (flat @ covariance * flat).sum(1).sqrt())
    assert_close(t.norm(g), (flat @ covariance.inverse() * flat).sum(1).sqrt())


def test_a_matrix_of_colours_acts_on_every_pixel() -> None:
    M, v = matrix(3), draw(2)
    whole = torch.einsum("nchw,cd,ndhw->n", v, M, v).sqrt()
    assert_close(Mahalanobis(M).norm(v), whole)
    blocks = torch.stack([matrix(16, seed) for seed in range(3)])
    flat = v.flatten(2)
    assert_close(Mahalanobis(blocks).norm(v), torch.einsum("ncp,cpq,ncq->n", flat, blocks, flat).sqrt())


def test_gradients_flow_through_the_norms() -> None:
    """Double backprop differentiates the dual: its gradient is the steepest ascent. At zero it must not be NaN."""
    for t in NORMS.values():
        g = draw(3)
        g[2] = 0
        g.requires_grad_()
        (slope,) = torch.autograd.grad(t.dual_norm(g)[:2].sum(), g)
        assert_close(slope[:2], t.ascent(g.detach())[:2], atol=1e-9, rtol=1e-7)
        g = torch.zeros(1, *SHAPE, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(t.dual_norm(g).sum(), g)
        assert slope.isfinite().all()


def test_half_precision_is_reduced_in_single() -> None:
    v = draw(2).half()
    for name, t in NORMS.items():
        if not isinstance(t, ThreeHalves | SumOfChannels) and name != "weighted own":
            assert t.norm(v).dtype == torch.float32
            assert t.ascent(v).dtype == t.project(v, 0.5).dtype == t.sample(v, 1.0, generator()).dtype == torch.float16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted("l2", torch.tensor([1.0, 0.0])), "weights must be positive, finite numbers; got 0 to 1"),
        (lambda: Weighted("l2", []), "weights must be finite numbers"),
        (lambda: Weighted("l2", [1.0, float("nan")]), "weights must be finite numbers"),
        (lambda: Weighted("l2", torch.ones(3)).norm(draw(1)), r"shape of an image, \(3, 4, 4\), .* got \(3,\)"),
        (lambda: Weighted("l3", 1.0), "threat must be one of"),  # type: ignore[arg-type]
        (lambda: Mahalanobis(torch.ones(2, 3)), r"matrix must be square, .* got shape \(2, 3\)"),
        (lambda: Mahalanobis(torch.tensor([[1.0, 2.0], [0.0, 1.0]])), "matrix must be symmetric"),
        (lambda: Mahalanobis(-torch.eye(2)), "positive definite; its smallest eigenvalue is -1"),
        (lambda: Mahalanobis(torch.eye(5)).norm(draw(1)), r"of the 48 pixels .* got shape \(5, 5\)"),
        (lambda: Pixelwise(axis=0), "axis must be at least 1"),
        (lambda: Pixelwise(axis=4).norm(draw(1)), r"axis must be one of an image of shape \(3, 4, 4\); got 4"),
    ],
)
def test_mistakes_in_one_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
