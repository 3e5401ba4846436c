"""Random numbers that belong to an image or to a place in a run, never to a batch, an order or a process.

Every stream has one key, a hash of its purpose and of the numbers it belongs to (seed, image, epoch, …). So results do
not change with batch size, order or the number of processes, any stream can be opened again without a saved state, and
the global random state is never touched. Three engines draw from such a key:

- `generator`: torch's, for permutations and a few draws on the CPU; it keeps 32 bits of its seed;
- `stream`: NumPy's Philox, counter-based, for millions of streams that must not overlap;
- `Streams`: SplitMix64 on whole batches at once, on the model's device, for the inner loops of attacks.
"""

import math
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from gradreg.fingerprints import image_keys
from gradreg.precision import at_least_single


def key(purpose: str, *numbers: int) -> int:
    """64 bits for the stream of that purpose and those numbers."""
    return int.from_bytes(blake2b(repr((purpose, numbers)).encode(), digest_size=8).digest(), "little")


def generator(purpose: str, *numbers: int) -> torch.Generator:
    """A fresh torch generator for that key, on the CPU."""
    return torch.Generator().manual_seed(key(purpose, *numbers))


def stream(purpose: str, *numbers: int) -> np.random.Generator:
    """A Philox generator for that key."""
    return np.random.Generator(np.random.Philox(key=key(purpose, *numbers)))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST, _SECOND = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


class Streams:
    """One stream of random numbers for each image and label."""

    def __init__(self, seed: int, x: Tensor, y: Tensor, keys: Tensor | None = None) -> None:
        """`keys` are the fingerprints of the images, where they are known already."""
        labelled = (image_keys(x) if keys is None else keys).to(x.device) + y.to(torch.int64) * _GOLDEN
        self._places: Tensor | None = None
        self.keys = _mix(_mix(labelled) + _signed(key("attack", seed)))

    def uniform(self, like: Tensor, draw: int, salt: int = 0, rows: Tensor | None = None) -> Tensor:
        """Numbers in [0, 1) of the shape of `like`, the same for the same `draw` and `salt`; for these `rows` only."""
        dtype = at_least_single(like.dtype)
        bits = 24 if dtype == torch.float32 else 53
        keys = self.keys if rows is None else self.keys[rows]
        return self._words(keys, like[0].numel(), draw, salt, bits).to(dtype).div_(1 << bits).view(like.shape)

    def normal(self, like: Tensor, draw: int, salt: int = 0) -> Tensor:
        """Standard normal numbers, two from each pair of uniform ones (Box & Muller 1958)."""
        half = (like[0].numel() + 1) // 2
        pairs = self.uniform(like.new_empty(len(like), 2, half), draw, salt)
        radius = pairs[:, 0].neg().log1p_().mul_(-2).sqrt_()
        angle = pairs[:, 1].mul_(2 * math.pi)
        both = torch.stack([angle.cos(), angle.sin()], 1).mul_(radius[:, None]).flatten(1)
        return both[:, : like[0].numel()].reshape(like.shape)

    def _words(self, keys: Tensor, count: int, draw: int, salt: int, bits: int) -> Tensor:
        """Random integers of that many bits; allocation dominates the time, so it works in place."""
        if self._places is None or len(self._places) != count:
            self._places = torch.arange(1, count + 1, device=self.keys.device) * _GOLDEN
        key = _mix(keys + _signed((salt * 0x1000003 + draw) * 0x9E3779B97F4A7C15 & (1 << 64) - 1))
        words = _mix(key[:, None] + self._places)
        return _shift(words, 64 - bits, words)


def _mix(z: Tensor) -> Tensor:
    """The output function of SplitMix64 (Steele, Lea & Flood 2014), a bijection of the 64-bit integers; in place."""
    spare = torch.empty_like(z)
    z.bitwise_xor_(_shift(z, 30, spare)).mul_(_FIRST)
    z.bitwise_xor_(_shift(z, 27, spare)).mul_(_SECOND)
    return z.bitwise_xor_(_shift(z, 31, spare))


def _shift(z: Tensor, by: int, out: Tensor) -> Tensor:
    """Shift to the right, filling with zeros: torch's own keeps the sign."""
    torch.bitwise_right_shift(z, by, out=out)
    return out.bitwise_and_((1 << (64 - by)) - 1)
