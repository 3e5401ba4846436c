"""Do the methods of a norm belong together? A wrong dual or direction gives figures that are wrong and look right."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gradreg.checks.calls import validated
from gradreg.checks.objects import check_kind
from gradreg.checks.tensors import check_batch
from gradreg.errors import ConfigError
from gradreg.norms.base import Threat
from gradreg.norms.linear import LinearImage
from gradreg.norms.memory import Memory
from gradreg.norms.tensors import inner
from gradreg.precision import at_least_single

_IMAGES = 4
# Allowed relative error, far above the rounding of sums over an image and far below the effect of a wrong exponent.
_TOLERANCE = 1e-3
_RADIUS = 0.5

_Checked = tuple[tuple[int, ...], torch.device, torch.dtype]
_PASSED = Memory[set[_Checked]](set)


def checked(threat: Threat, like: Tensor) -> Threat:
    """The threat, after `check` the first time that it meets images of that shape; gradreg's own are known to hold."""
    check_kind("threat", threat, (Threat,))
    check_batch(like, "like")
    if threat.p is not None and type(threat).__module__.startswith("gradreg."):
        return threat
    passed = _PASSED.of(threat)
    kind = tuple(like.shape[1:]), like.device, at_least_single(like.dtype)
    if kind not in passed:
        if not type(threat).__module__.startswith("gradreg."):
            check(threat, like)
        elif isinstance(threat, LinearImage):
            checked(threat.base, like)
        threat.norm(like[:1])  # refuses weights and matrices of another shape
        passed.add(kind)
    return threat


@validated
def check(threat: Threat, like: Tensor) -> None:
    """Refuse a norm whose methods contradict each other on random images in the shape of those of `like`.

    It draws four images, and tests what a norm, its dual, its steepest ascent, its projection and its samples must
    fulfil. The nearest point Pv of the ball is one for which r‖v − Pv‖_* = ⟨v − Pv, Pv⟩, so that test is complete.
    """
    check_batch(like, "like")
    for method, problem in _problems(threat, like):
        name = type(threat).__name__
        raise ConfigError(f"{name}.{method} {problem}. docs/norms.md says what each method must do.")


def _problems(threat: Threat, like: Tensor) -> Iterator[tuple[str, str]]:
    """A method and what is wrong with it, from the most basic one on; a later test relies on the earlier ones."""
    dtype, device = at_least_single(like.dtype), like.device
    source = torch.Generator().manual_seed(0)
    draw = torch.randn((3, _IMAGES, *like.shape[1:]), generator=source, dtype=dtype).to(device)
    v, other, g = draw.unbind(0)
    zero = torch.zeros_like(v)
    for method in ("norm", "dual_norm"):
        yield from _is_norm(method, getattr(threat, method), v, other)
    size, slope, d = threat.norm(v), threat.dual_norm(g), threat.ascent(g)
    if d.shape != g.shape or d.dtype != g.dtype:
        yield "ascent", f"must return a tensor like the gradient, {_kind(g)}; got {_kind(d)}"
    if not bool((threat.ascent(zero) == 0).all()):
        yield "ascent", "must return 0 for an image whose gradient is 0"
    length = threat.norm(d)
    if _apart(length, torch.ones_like(length)):
        yield "ascent", f"must return directions of norm 1; got norm {float(length[0]):.4g}"
    if _apart(inner(g, d), slope):
        got, due = float(inner(g, d)[0]), float(slope[0])
        yield "ascent", f"must return the d with ⟨g, d⟩ = dual_norm(g), {due:.4g}; got ⟨g, d⟩ = {got:.4g}"
    if bool((inner(g, v).abs() > (1 + _TOLERANCE) * slope * size).any()):
        yield "dual_norm", "must be at least ⟨g, v⟩ / norm(v) for every v; got less (Hölder's inequality)"
    yield from _projects(threat, v, size)
    yield from _samples(threat, v)
    yield from _attacks(threat, g, slope)
    if _apart(torch.cat([threat.norm(v[:1]), threat.norm(v[1:])]), size):
        yield "norm", "must measure every image by itself; got other values in a batch of another size"


def _is_norm(method: str, norm: Callable[[Tensor], Tensor], v: Tensor, other: Tensor) -> Iterator[tuple[str, str]]:
    found = norm(v)
    if found.shape != (len(v),) or not found.is_floating_point():
        yield method, f"must return one number per image, shape ({len(v)},); got {_kind(found)}"
    if not bool((found.isfinite() & (found > 0)).all()) or bool((norm(torch.zeros_like(v)) != 0).any()):
        yield method, "must be finite and above 0, and 0 for an image of zeros"
    if _apart(norm(-2 * v), 2 * found):
        yield method, "must double when v is doubled, whatever its sign"
    # Parts without a common pixel show it where sums of dense images do not, as for p < 1.
    one = v.where(other > 0, 0)
    apart, sums = norm(one) + norm(v - one), found + norm(other)
    if bool((found > (1 + _TOLERANCE) * apart).any()) or bool((norm(v + other) > (1 + _TOLERANCE) * sums).any()):
        yield method, "must fulfil the triangle inequality, ‖v + w‖ ≤ ‖v‖ + ‖w‖"


def _projects(threat: Threat, v: Tensor, size: Tensor) -> Iterator[tuple[str, str]]:
    # The radius of the first image holds it, so it must stay.
    share = torch.full_like(size, _RADIUS).index_fill(0, torch.zeros(1, dtype=torch.int64, device=v.device), 2.0)
    radius = share * size
    near = threat.project(v, radius)
    if near.shape != v.shape or near.dtype != v.dtype:
        yield "project", f"must return a tensor like v, {_kind(v)}; got {_kind(near)}"
    if _apart(near[0], v[0]):
        yield "project", "must leave a point of the ball where it is"
    if bool((threat.norm(near) > (1 + _TOLERANCE) * radius).any()):
        ratio = float((threat.norm(near) / radius).max())
        yield "project", f"must return points of the ball; got a norm of {ratio:.4g} radii"
    rest = (v - near)[1:]
    gap = radius[1:] * threat.dual_norm(rest) - inner(rest, near[1:])
    if bool((gap > _TOLERANCE * inner(v, v)[1:]).any()):
        yield "project", "must return the nearest point of the ball in the Euclidean sense; got a farther one"
    whole = threat.project(v, _RADIUS * float(size.min()))
    if whole.shape != v.shape:
        yield "project", "must accept a number as the radius as well as one radius per image"


def _attacks(threat: Threat, g: Tensor, slope: Tensor) -> Iterator[tuple[str, str]]:
    """What is inherited from another norm, or was written for speed, must still fit."""
    far = torch.full_like(g, float(100 * g.abs().max()))
    across = threat.nearest(g, slope, -far, far)
    if _apart(threat.norm(across), torch.ones_like(slope)) or _apart(inner(g, across), slope):
        yield "nearest", "must return the smallest v with ⟨normal, v⟩ ≥ need; got another one (or inherits it)"
    for method in ("pull", "climb"):
        highest = threat.retract(1e4 * getattr(threat, method)(g), 1.0)
        if _apart(threat.norm(highest), torch.ones_like(slope)) or _apart(inner(g, highest), slope):
            yield method, "and retract must lead to the highest point of the ball; got another one (or inherits it)"


def _samples(threat: Threat, v: Tensor) -> Iterator[tuple[str, str]]:
    for method in ("sample", "sample_surface"):
        draw = getattr(threat, method)
        radius = torch.linspace(0.5, 2, len(v), dtype=v.dtype, device=v.device)
        once, again = (draw(v, radius, torch.Generator(v.device).manual_seed(1)) for _ in range(2))
        if once.shape != v.shape or once.dtype != v.dtype:
            yield method, f"must return a tensor like its first argument, {_kind(v)}; got {_kind(once)}"
        if not torch.equal(once, again):
            yield method, "must draw from the generator that it is given; got other samples from the same seed"
        size = threat.norm(once)
        if bool((size > (1 + _TOLERANCE) * radius).any()) or (method == "sample_surface" and _apart(size, radius)):
            where = "in the ball" if method == "sample" else "on the surface"
            yield method, f"must draw points {where}; got a norm of {float((size / radius).max()):.4g} radii"


def _apart(found: Tensor, due: Tensor) -> bool:
    scale = due.double().abs().max()
    return not bool(((found.double() - due.double()).abs() <= _TOLERANCE * scale).all())


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
