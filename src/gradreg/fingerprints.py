"""Fingerprints of images and weights: one identity for each, wherever work is resumed, compared or merged."""

from collections.abc import Iterable
from hashlib import blake2b

import torch
from torch import Tensor, nn


def image_keys(x: Tensor) -> Tensor:
    """A 64-bit fingerprint of the pixels per image, in single precision; on the CPU."""
    rows = x.detach().to("cpu", torch.float32).resolve_neg().contiguous().numpy()
    return torch.tensor([int.from_bytes(_digest(row.tobytes(), 8), "little", signed=True) for row in rows])


def joint_key(keys: Iterable[int]) -> str:
    """One fingerprint for a whole sequence of keys, in this order."""
    return _digest(",".join(map(str, keys)).encode(), 16).hex()


def images_key(x: Tensor, *columns: Tensor) -> str:
    """One fingerprint for a batch of images and further columns, such as labels or positions."""
    return joint_key([*image_keys(x).tolist(), *(value for column in columns for value in column.tolist())])


def model_key(model: nn.Module, prefix: str = "") -> str:
    """A fingerprint of a model's layers and weights; `prefix` is whatever else its outputs depend on."""
    digest = blake2b(prefix.encode(), digest_size=16)
    digest.update(repr(model).encode())
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        if isinstance(value, Tensor):
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _digest(data: bytes, size: int) -> bytes:
    return blake2b(data, digest_size=size).digest()
