"""What a norm is called in files and results, so that work in one norm is never taken for work in another."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from types import FunctionType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from gradreg.checks.objects import Must, check_function
from gradreg.checks.tensors import check_batch
from gradreg.fingerprints import model_key

# Places of the digest in a name: with 100 norms, two share it with probability 1e-6.
_PLACES = 8
_PROBES = 3


@runtime_checkable
class _Parametric(Protocol):
    """A norm, of which some attributes only say how it is written."""

    def parameters(self) -> Mapping[str, object]: ...
    def dual_norm(self, g: Tensor) -> Tensor: ...


class _Measures(Protocol):
    def norm(self, v: Tensor) -> Tensor: ...
    def dual_norm(self, g: Tensor) -> Tensor: ...


def slug(name: str) -> str:
    """A class name as part of a file name: ElasticNet is elastic-net."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "norm"


def attributes(owner: object, base: type) -> dict[str, object]:
    """The attributes of an object and of its classes below `base`, methods aside."""
    classes = [cls for cls in reversed(type(owner).__mro__) if issubclass(cls, base) and cls is not base]
    found = {name: value for cls in classes for name, value in vars(cls).items()}
    found = {name: value for name, value in found.items() if not _is_method(name, value)}
    return found | vars(owner)


def digest(*values: object) -> str:
    """A few hexadecimal digits for values of any kind: tensors, numbers, texts, modules, objects made of them."""
    found = blake2b(digest_size=_PLACES // 2)
    for value in values:
        _update(found, value, frozenset())
    return found.hexdigest()


def probe(threat: _Measures, like: Tensor) -> tuple[float, ...]:
    """The norm and the dual norm of fixed pseudo-random images shaped as those of `like`.

    A name shows what a norm's attributes are, and this what it computes. Where a norm depends on something else, such
    as a global variable, only this shows that it has changed.
    """
    check_batch(like, "like")
    for method in ("norm", "dual_norm"):
        check_function(f"threat.{method}", getattr(threat, method, None), Must("a method of a norm"))
    source = torch.Generator().manual_seed(0)
    images = torch.randn((_PROBES, *like.shape[1:]), generator=source, dtype=torch.float64, device="cpu")
    # Not every accelerator computes in double precision.
    images = images.to(like.device, torch.float32 if like.device.type == "mps" else torch.float64)
    measured = torch.cat([threat.norm(images), threat.dual_norm(images)])
    return tuple(measured.double().tolist())


def _is_method(name: str, value: object) -> bool:
    kinds = (FunctionType, property, classmethod, staticmethod)
    return name.startswith("__") or name.startswith("_abc_") or name == "_name" or isinstance(value, kinds)


def _update(found: Any, value: object, seen: frozenset[int]) -> None:
    """Every value begins with its kind, so that values of different kinds never read the same."""
    found.update(f"<{type(value).__module__}.{type(value).__qualname__}>".encode())
    if id(value) in seen:
        return
    seen = seen | {id(value)}
    if isinstance(value, Tensor):
        array = value.detach().cpu().contiguous()
        found.update(f"{array.dtype}{tuple(array.shape)}".encode())
        found.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray):
        found.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, nn.Module):
        found.update(model_key(value).encode())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            found.update(repr(key).encode())
            _update(found, value[key], seen)
    elif isinstance(value, list | tuple):
        found.update(str(len(value)).encode())
        for part in value:
            _update(found, part, seen)
    elif isinstance(value, type | FunctionType):
        found.update(f"{value.__module__}.{value.__qualname__}".encode())
    elif isinstance(value, _Parametric):
        _update(found, value.parameters(), seen)
    elif hasattr(value, "__dict__"):
        _update(found, vars(value), seen)
    else:
        found.update(repr(value).encode())
