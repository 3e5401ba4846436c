"""Sums over the pixels of each image, in enough precision, and the methods of a norm that generic solutions need."""

from typing import Any, Protocol

import torch
from torch import Tensor

from gradreg.checks.scalars import shown
from gradreg.checks.tensors import check_dense
from gradreg.errors import ConfigError
from gradreg.precision import at_least_single

_SMALLEST, _LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


class Norm(Protocol):
    """What is needed to find the nearest point of a half-space or a weighted ball."""

    def dual_norm(self, g: Tensor) -> Tensor: ...
    def ascent(self, g: Tensor) -> Tensor: ...
    def project(self, v: Tensor, radius: float | Tensor) -> Tensor: ...


def per_image(values: float | Tensor, like: Tensor) -> Tensor:
    """One number per image, shaped to multiply a batch of images."""
    dtype = at_least_single(like.dtype)
    if not isinstance(values, Tensor):
        # Made there: an accelerator waits for a number that is copied from the host.
        return torch.full([1] * like.ndim, values, dtype=dtype, device=like.device)
    return values.to(like.device, dtype).reshape(-1, *[1] * (like.ndim - 1))


def check_parameter(name: str, value: Any) -> Tensor:
    """Numbers of a norm, as a tensor in double precision on the CPU: at least one, all finite, none beyond float32."""
    if isinstance(value, Tensor):
        check_dense(name, value, ConfigError)
    try:
        found = torch.as_tensor(value, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError, OverflowError, RuntimeError):
        found = torch.zeros(0, device="cpu")
    size = found.abs()
    if not found.numel() or not bool((size <= _LARGEST).all()) or bool(((size > 0) & (size < _SMALLEST)).any()):
        raise ConfigError(f"{name} must be finite numbers that float32 can hold; got {shown(value)}.")
    return found


def inner(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ per image."""
    return (a * b).flatten(1).sum(1)


def pixels(images: Tensor) -> tuple[int, ...]:
    """The axes of an image in a batch."""
    if images.ndim < 2:
        raise ConfigError(f"Expected a batch of images of shape (N, …); got {tuple(images.shape)}. Add a batch axis.")
    return tuple(range(1, images.ndim))


def scaled(v: Tensor) -> tuple[Tensor, Tensor]:
    """Each image's largest entry, and the image divided by it: squares then neither overflow nor vanish."""
    v = v.to(at_least_single(v.dtype))
    largest = v.detach().abs().amax(pixels(v), keepdim=True)
    largest = largest.where(largest > 0, 1)
    return largest, v / largest


def euclidean(v: Tensor) -> Tensor:
    """The l2 norm per image, shaped to divide the images."""
    length: Tensor = torch.linalg.vector_norm(v, dim=pixels(v), keepdim=True)
    return length


def sum_of_absolutes(v: Tensor) -> Tensor:
    """The l1 norm per image."""
    return v.abs().sum(pixels(v), dtype=at_least_single(v.dtype))


def uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform random numbers of [0, 1) in the shape of `like`."""
    return torch.empty_like(like, dtype=at_least_single(like.dtype)).uniform_(generator=generator)


class Placed:
    """A tensor of parameters in double precision, and copies of it for other devices and precisions."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def like(self, v: Tensor) -> Tensor:
        """On the device of `v`, in its precision but at least a single one."""
        key = v.device, at_least_single(v.dtype)
        if key not in self._copies:
            self._copies[key] = self.tensor.to(*key)
        return self._copies[key]
