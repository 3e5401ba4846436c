"""The geometry of a threat: duality, projections and balls."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from gradreg import ConfigError
from gradreg.norms import THREATS, Threat, threat

DTYPES = (torch.float16, torch.float32, torch.float64)
ROUNDING = {torch.float16: 4e-3, torch.float32: 2e-6, torch.float64: 1e-13}
threats = st.sampled_from(list(THREATS.values()))
dtypes = st.sampled_from(DTYPES)


@st.composite
def batches(draw: st.DrawFn, dtype: torch.dtype | None = None) -> Tensor:
    shape = (draw(st.integers(1, 4)), *draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    source = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    size = draw(st.sampled_from([1e-2, 1.0, 30.0]))
    v = size * torch.randn(shape, generator=source, dtype=torch.float64)
    # Exact ties and zeros are where norms go wrong.
    v = v.where(torch.rand(shape, generator=source) > 0.2, 0.0).where(torch.rand(shape, generator=source) > 0.2, size)
    return v.to(dtype or draw(dtypes))


def inner(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() * b.double()).flatten(1).sum(1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(threats, batches())
def test_hoelder_is_tight_at_the_ascent_direction(t: Threat, g: Tensor) -> None:
    d = t.ascent(g)
    assert d.dtype == g.dtype
    assert_close(inner(g, d), t.dual_norm(g).double(), rtol=ROUNDING[g.dtype], atol=0)
    nonzero = g.flatten(1).any(1)
    assert_close(t.norm(d).double(), nonzero.double(), rtol=ROUNDING[g.dtype], atol=0)


@given(threats, batches(torch.float64), batches(torch.float64))
def test_hoelders_inequality(t: Threat, g: Tensor, v: Tensor) -> None:
    v = v.flatten(1)[:1, :1].expand(len(g), g[0].numel()).reshape(g.shape) + torch.sin(17 * g)
    assert (inner(g, v).abs() <= t.dual_norm(g) * t.norm(v) * (1 + 1e-12)).all()


@given(threats, batches(), st.floats(0, 3))
def test_projection_lands_in_the_ball_and_stays(t: Threat, v: Tensor, radius: float) -> None:
    once = t.project(v, radius)
    assert once.dtype == v.dtype
    assert (t.norm(once) <= radius * (1 + ROUNDING[v.dtype]) + 1e-7).all()
    assert_close(t.project(once, radius), once, rtol=2 * ROUNDING[v.dtype], atol=2 * ROUNDING[v.dtype] * radius)
    inside = t.norm(v) <= radius
    assert_close(once[inside], v[inside], rtol=ROUNDING[v.dtype], atol=ROUNDING[v.dtype] * radius)


@given(threats, batches(torch.float64), st.floats(0.01, 3), st.integers(0, 99))
def test_projection_is_the_nearest_point(t: Threat, v: Tensor, radius: float, seed: int) -> None:
    """⟨v − Pv, z − Pv⟩ ≤ 0 for every z of the ball says that Pv is the nearest point of a convex set."""
    p = t.project(v, radius)
    for other in (t.sample(v, radius, generator(seed)), radius * t.ascent(v), radius * t.ascent(v - p)):
        assert (inner(v - p, other - p) <= 1e-10 * (1 + t.norm(v) ** 2)).all()


@given(threats, batches(), st.floats(0, 3), st.integers(0, 99))
def test_samples_lie_in_the_ball(t: Threat, like: Tensor, radius: float, seed: int) -> None:
    tolerance = 1 + ROUNDING[like.dtype]
    assert (t.norm(t.sample(like, radius, generator(seed))) <= radius * tolerance + 1e-7).all()
    surface = t.norm(t.sample_surface(like, radius, generator(seed))).double()
    assert_close(surface, torch.full_like(surface, radius), rtol=ROUNDING[like.dtype], atol=1e-6)


@pytest.mark.parametrize("t", THREATS.values(), ids=THREATS)
def test_samples_are_uniform_in_the_ball(t: Threat) -> None:
    """In d dimensions (‖v‖/r)^d is uniform on [0, 1], signs are fair, and no coordinate is special."""
    like = torch.empty(20_000, 3, dtype=torch.float64)
    v = t.sample(like, 2.0, generator())
    depth = (t.norm(v) / 2) ** 3
    assert_close(depth.sort().values, torch.linspace(0, 1, 20_000, dtype=torch.float64), atol=0.015, rtol=0)
    assert v.mean(0).abs().max() < 0.03
    spread = v.square().mean(0)
    assert_close(spread, spread.mean().expand(3), rtol=0.03, atol=0)


def test_samples_cover_the_cube_and_its_faces_evenly() -> None:
    like = torch.empty(12_000, 2, dtype=torch.float64)
    faces = threat("linf").sample_surface(like, 1.0, generator())
    counts = torch.stack([(faces == sign).sum(0) for sign in (-1, 1)])
    assert_close(counts.double(), torch.full((2, 2), 3000.0, dtype=torch.float64), rtol=0.06, atol=0)
    assert_close(faces.abs().amin(1).mean().item(), 0.5, rtol=0, atol=0.02)


@pytest.mark.parametrize("t", THREATS.values(), ids=THREATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_gradient_rows_give_a_zero_direction(t: Threat, dtype: torch.dtype) -> None:
    g = torch.zeros(3, 2, 2, dtype=dtype)
    g[1] = 1
    d = t.ascent(g)
    assert not d[0].any()
    assert d[1].any()
    assert d.isfinite().all()


@pytest.mark.parametrize("size", [1e-30, 1e-25, 1e25])
def test_directions_do_not_depend_on_the_gradients_size(size: float) -> None:
    """A saturated softmax has gradients whose squares vanish in single precision."""
    g = torch.tensor([[3.0, 4.0]]) * size
    assert_close(threat("l2").ascent(g), torch.tensor([[0.6, 0.8]]))
    assert_close(threat("l2").norm(g), torch.tensor([5.0 * size]), rtol=1e-5, atol=0)


def test_half_precision_norms_do_not_overflow() -> None:
    v = torch.full((1, 3, 224, 224), 10.0, dtype=torch.float16)
    assert threat("l1").norm(v).item() == 3 * 224 * 224 * 10
    assert_close(threat("l2").norm(v).item(), 10 * (3 * 224 * 224) ** 0.5, rtol=1e-4, atol=0)


def test_radii_may_differ_from_image_to_image() -> None:
    v = torch.ones(3, 2, 2, dtype=torch.float64)
    radius = torch.tensor([0.0, 0.5, 9.0], dtype=torch.float64)
    for t in THREATS.values():
        own = torch.minimum(radius, t.norm(v))
        assert_close(t.norm(t.project(v, radius)), own)
        assert (t.norm(t.sample(v, radius, generator())) <= radius).all()


def test_channels_last_survives() -> None:
    g = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    for name in ("l2", "linf"):
        assert threat(name).ascent(g).is_contiguous(memory_format=torch.channels_last)


def test_gradients_flow_through_norms() -> None:
    """Double backprop differentiates them, also at zero, where they have no derivative but must not give NaN."""
    for t in THREATS.values():
        v = torch.tensor([[3.0, -4.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
        (g,) = torch.autograd.grad(t.norm(v).sum(), v)
        assert_close(inner(g, v.detach()), t.norm(v).detach())
        assert g.isfinite().all()


def test_unknown_threats_and_shapes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"threat must be one of linf, l2, l1, .*; got 'l3'"):
        threat("l3")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Add a batch axis"):
        threat("l2").norm(torch.ones(3))
