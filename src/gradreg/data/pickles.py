"""Byte arrays from an untrusted pickle.

Python's unpickler calls whatever a file names; this one accepts three names of numpy and gives each a harmless
stand-in. Numpy's own classes are not used: they trust the array flags and addresses in a pickle.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradreg.data.files import damaged
from gradreg.errors import DataError


class PickledArray:
    """The state that a pickle gives for a numpy array, kept until its bytes are needed."""

    state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def bytes(self) -> NDArray[np.uint8]:
        """The array, if it is one of bytes in C order; ValueError if it is anything else."""
        match self.state:
            case (int(), tuple(shape), _PickledType(name="u1"), False | 0, bytes(data)):
                if all(isinstance(size, int) for size in shape) and math.prod(shape) == len(data):
                    return np.frombuffer(data, np.uint8).reshape(shape)
        raise ValueError("an array in it is not one of bytes")


class _PickledType:
    """The name of a numpy dtype; byte order and flags, which follow as its state, do not matter to bytes."""

    def __init__(self, name: object = None, *_: object) -> None:
        self.name = name.decode("latin1") if isinstance(name, bytes) else name

    def __setstate__(self, state: object) -> None:
        pass


class _RefusedError(Exception):
    """The pickle names something that holds no data."""


class _Restricted(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")  # Python 2 wrote its strings as bytes
        # Made anew for each file, because a pickle can set attributes of whatever it can name.
        array = type("ndarray", (PickledArray,), {})
        self.known: dict[tuple[str, str], Any] = {
            ("numpy", "ndarray"): array,
            ("numpy", "dtype"): type("dtype", (_PickledType,), {}),
            ("numpy.core.multiarray", "_reconstruct"): lambda *_: array(),
            ("numpy._core.multiarray", "_reconstruct"): lambda *_: array(),
        }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise _RefusedError(f"{module}.{name}")
        return self.known[module, name]


def load(data: bytes, source: str) -> dict[str, Any]:
    """The dictionary in a pickle of dicts, lists, strings, numbers and `PickledArray`s; keys become str."""
    try:
        content = _Restricted(data).load()
    except _RefusedError as error:
        raise DataError(
            f"{source} names {error}, which no data file needs: it is refused and nothing in it was run."
        ) from None
    except Exception as error:  # a damaged pickle can make the unpickler raise almost anything
        raise damaged(source, error) from error
    if not isinstance(content, dict):
        raise damaged(source, "it holds no dictionary")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): content[key] for key in content}
