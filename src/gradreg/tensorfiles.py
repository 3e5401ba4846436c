"""The tensors of a safetensors file, in memory of their own.

The library maps a file into memory. When somebody writes to it later, values change that were read and checked before;
when somebody cuts it short, the system ends the process. So the bytes are read here, as the format has them: the length
of a JSON header, the header with the type, shape and place of every tensor, then their values without gaps.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gradreg.errors import DataError
from gradreg.reading import json_table, opened

_MOST_HEADER = 1 << 24
_MOST_TENSORS = 1 << 16
_MOST_SIDES = 64
_LENGTH = 8  # bytes
_METADATA = "__metadata__"
_TYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64, "F16": torch.float16,
    "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


@dataclass(frozen=True)
class _Entry:
    """Where a tensor is, counted from the end of the header."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def load(path: str | os.PathLike[str], what: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors on the CPU, and the texts in the header; whatever is wrong becomes a DataError that says `what`."""
    with opened(path) as file:
        try:
            header = _header(file)
            metadata = _texts(header.pop(_METADATA, None) or {})
            size = os.fstat(file.fileno()).st_size - file.tell()
            return {each.name: _tensor(file, each) for each in _entries(header, size)}, metadata
        except Exception as error:  # torch's own for what does not fit a tensor
            words = " ".join(str(error).split()).rstrip(".")[:300]
            raise DataError(f"{path} cannot be read as {what}: {words}.") from error


def _header(file: BinaryIO) -> dict[str, Any]:
    length, size = int.from_bytes(file.read(_LENGTH), "little"), os.fstat(file.fileno()).st_size
    if length > min(size - _LENGTH, _MOST_HEADER):
        raise DataError(f"its header of {length:,} bytes must be within the file and {_MOST_HEADER:,} bytes.")
    return json_table(file.read(length), "its header")


def _texts(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(words, str) for words in metadata.values()):
        raise DataError(f"{_METADATA} in its header must be a table of texts.")
    return metadata


def _entries(header: Mapping[str, Any], size: int) -> list[_Entry]:
    """In the order of their values, which fill the file without gaps."""
    if len(header) > _MOST_TENSORS:
        raise DataError(f"it must hold at most {_MOST_TENSORS:,} tensors; got {len(header):,}.")
    entries = sorted(
        (_entry(name, entry) for name, entry in header.items()), key=lambda entry: (entry.start, entry.end)
    )
    end = 0
    for entry in entries:
        if entry.start != end:
            raise DataError(
                f"its tensors must follow each other; got {entry.name[:80]!r} at {entry.start}, after {end}."
            )
        end = entry.end
    if end != size:
        raise DataError(f"its tensors must have {size:,} bytes, as the file has after its header; got {end:,}.")
    return entries


def _entry(name: str, entry: Any) -> _Entry:
    shown = f"{name[:80]!r} in its header"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise DataError(f"{shown} must have a dtype, a shape and data_offsets.")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise DataError(f"{shown} must be of a type that torch has; got {str(dtype)[:40]!r}.")
    if not _are_sizes(shape) or len(shape) > _MOST_SIDES or not _are_sizes(place) or len(place) != 2:
        raise DataError(f"{shown} must have at most {_MOST_SIDES} sides and two offsets, all whole numbers from 0.")
    start, end = place
    if end - start != math.prod(shape) * _TYPES[dtype].itemsize:
        raise DataError(f"{shown} must have as many bytes as its shape says; got {end - start:,}.")
    return _Entry(name, _TYPES[dtype], tuple(shape), start, end)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def _tensor(file: BinaryIO, entry: _Entry) -> Tensor:
    if entry.start == entry.end:
        return torch.empty(entry.shape, dtype=entry.dtype, device="cpu")
    data = bytearray(entry.end - entry.start)
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]
        raise DataError("it was cut short while it was read.")
    if entry.dtype is torch.bool and max(data) > 1:
        raise DataError(f"{entry.name[:80]!r} must hold truth values; got {max(data)}.")
    return torch.frombuffer(data, dtype=entry.dtype).reshape(entry.shape)
