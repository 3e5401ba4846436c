"""Random streams that belong to an image, not to its place in a batch.

A stream's key is a hash of the image's pixels, the seed and the purpose, so a result does not change with batch size,
order or the number of processes. Philox is counter-based with a 128-bit key: streams do not overlap, and any of them
can be opened again without a saved state. (torch's CPU generator keeps 32 bits of its seed: with a million streams
some would be the same.)
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor


def content_keys(x: Tensor) -> Tensor:
    """A 64-bit fingerprint of each image's pixels."""
    rows = x.detach().to("cpu", torch.float32).contiguous().numpy()
    return torch.tensor([int.from_bytes(_digest(row.tobytes(), 8), "little", signed=True) for row in rows])


def stream(image: int, seed: int, purpose: str) -> np.random.Generator:
    """The random numbers of one image (its content key) for one purpose."""
    name = f"{image}/{seed}/{purpose}".encode()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(name, 16), "little")))


def torch_generator(image: int, seed: int, purpose: str) -> torch.Generator:
    """The same as a torch generator, for a few draws of one image; for many, `stream` is the safer one."""
    return torch.Generator().manual_seed(int(stream(image, seed, purpose).integers(2**32)))


def fingerprint(keys: Iterable[int]) -> str:
    """One name for a whole sequence of images."""
    return _digest(",".join(map(str, keys)).encode(), 16).hex()


def _digest(data: bytes, size: int) -> bytes:
    return blake2b(data, digest_size=size).digest()
