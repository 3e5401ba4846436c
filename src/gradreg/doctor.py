"""Is this installation sound? What it consists of, and two computations whose results are known."""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor, nn

from gradreg._version import __version__
from gradreg.attacks import attack
from gradreg.data import load
from gradreg.errors import GradregError
from gradreg.extras import EXTRAS
from gradreg.norms import THREATS
from gradreg.penalty import regularized_loss
from gradreg.provenance import commit, hardware

Lines = Iterator[tuple[str, str]]

_DISTRIBUTIONS = {"PIL": "pillow"}
_CORE = ("numpy", "safetensors", "filelock", "rich", "tyro")
_PENALTY_ERROR = 1e-5
_DISTANCE_ERROR = 1e-3


@dataclass(frozen=True)
class Check:
    """A self-check: what was computed, whether it came out right, and the figures."""

    name: str
    sound: bool
    found: str


def facts(device: torch.device) -> Lines:
    """What this installation consists of, as names and values."""
    at = commit()
    yield "gradreg", f"{__version__} at commit {at}" if at else __version__
    yield "python", f"{platform.python_version()} on {platform.platform(terse=True)}"
    yield "torch", torch.__version__
    yield "device", f"{device}: {hardware(device)}"
    yield "threads", str(torch.get_num_threads())
    for name in _CORE:
        yield name, _version(name)


def extras() -> Lines:
    """Optional packages: their versions, or the extra that installs them."""
    for package, extra in EXTRAS.items():
        name = _DISTRIBUTIONS.get(package, package)
        try:
            import_module(package)
            yield name, f"{_version(name)}: {extra.purpose}"
        except Exception as error:  # a package built for another torch raises what it likes
            why = "not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported ({error})"
            yield name, f"{why}; {extra.purpose}: pip install 'gradreg[{extra.name}]'"


def checks(device: torch.device) -> Iterator[Check]:
    """The self-checks, one after the other."""
    for name, check in _CHECKS.items():
        try:
            sound, found = check(device)
        except (GradregError, RuntimeError) as error:
            sound, found = False, f"{type(error).__name__}: {error}"
        yield Check(name, sound, found)


def _penalty(device: torch.device) -> tuple[bool, str]:
    """The penalty and its weight gradients, by finite differences and by double backprop."""
    dtype = _precise(device)
    model, x, y = _toy(nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Tanh(), nn.Linear(16, 4)), device, dtype)
    exact = _gradients(model, x, y, method="double-backprop")
    close = _gradients(model, x, y, h=1e-4 if dtype == torch.float64 else 1e-2, order=2)
    error = float((close - exact).norm() / exact.norm())
    most = _PENALTY_ERROR if dtype == torch.float64 else _DISTANCE_ERROR
    return error < most, f"relative difference {error:.1e}, of at most {most:g}"


def _gradients(model: nn.Module, x: Tensor, y: Tensor, **how: object) -> Tensor:
    out = regularized_loss(model, x, y, threat="l2", lam=1.0, **how)  # type: ignore[arg-type]
    return torch.cat([each.flatten() for each in torch.autograd.grad(out.loss, list(model.parameters()))])


def _attack(device: torch.device) -> tuple[bool, str]:
    """Distances to the boundary of a linear model with two classes, which are margin over dual norm of the normal."""
    linear = nn.Linear(48, 2)
    model, x, _ = _toy(nn.Sequential(nn.Flatten(), linear), device, torch.float32)
    y = model(x).argmax(1)
    normal = (linear.weight[1] - linear.weight[0]).detach()[None]
    margin = (model(x)[:, 1] - model(x)[:, 0]).abs().detach()
    worst = 0.0
    for name in ("l2", "linf"):
        found = attack(model, x, y, threat=name, seed=0).distance
        worst = max(worst, float((found / (margin / THREATS[name].dual_norm(normal)) - 1).abs().max()))
    return worst < _DISTANCE_ERROR, f"relative difference {worst:.1e}, of at most {_DISTANCE_ERROR:g}"


def _digits(_: torch.device) -> tuple[bool, str]:
    """The embedded images, whose checksum is looked at as they are read."""
    data = load("mnist5k")
    return True, f"{len(data.train)} + {len(data.test)} images"


_CHECKS: dict[str, Callable[[torch.device], tuple[bool, str]]] = {
    "penalty against double backprop": _penalty,
    "attack against a closed form": _attack,
    "embedded digits": _digits,
}


def _toy(model: nn.Sequential, device: torch.device, dtype: torch.dtype) -> tuple[nn.Sequential, Tensor, Tensor]:
    """A model with fixed small weights and images in the middle of the box, drawn apart from torch's own stream."""
    dice = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=dice) / 8
    x = 0.5 + 0.1 * (torch.rand(6, 3, 4, 4, generator=dice) - 0.5)
    y = torch.arange(6) % 2
    return model.to(device, dtype).eval(), x.to(device, dtype), y.to(device)


def _precise(device: torch.device) -> torch.dtype:
    """Double precision, which Apple's devices do not have."""
    return torch.float32 if device.type == "mps" else torch.float64


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "of unknown version"
