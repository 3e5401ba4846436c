"""Files of `torch.save`, by torch's weights-only reader, which makes tensors and plain containers and nothing else.

That reader trusts sizes: it takes the memory that a file asks for, ignores the checksums of its parts, enlarges a
storage that is too small with whatever lies in memory, and can be kept busy for ever by keys of tuples inside each
other. So all of that is checked here, and whatever is raised becomes one sentence.
"""

import io
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gradreg.errors import DataError
from gradreg.reading import check_regular
from gradreg.storage import check_memory

_MOST_PICKLED = 1 << 26
_MOST_INSIDE = 20
_MOST_NAME = 200  # letters; torch takes quadratic time to say that it does not know a longer one
# Files of before torch 1.6: a magic number, a version, facts of the machine, the object, the names of its storages.
_PICKLES_OF_OLD = 5
_PROTOCOL, _ARCHIVE = b"\x80", b"PK\x03\x04"
_FORBIDDEN = re.compile(r"GLOBAL (\S+)")
# They leave a list, a dict or a set, which has no hash.
_WITHOUT_HASH = ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "DICT", "LIST", "SETITEM", "SETITEMS", "APPEND", "APPENDS")


def read(path: Path) -> Any:
    """What `torch.save` wrote, on the CPU; tensors are dense, and as large as the file says."""
    size = check_regular(path)
    check_memory(path, size)
    try:
        with open(path, "rb") as file:
            held = _check_archive(file, path) if zipfile.is_zipfile(file) else None
            if held is None:
                _check_old(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of storages that are typed, which the reader makes itself
            content = torch.load(path, map_location="cpu", weights_only=True)
        _check_tensors(content, held, size)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} {_refusal(error)}.") from error
    return content


def _check_archive(file: BinaryIO, path: Path) -> list[int]:
    """The sizes of an archive's parts, whose checksums are right and which fit into memory together."""
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        check_memory(path, sum(part.file_size for part in parts))
        for part in parts:
            if part.filename.endswith(".pkl") and part.file_size <= _MOST_PICKLED:
                _check_pickle(io.BytesIO(archive.read(part)))
            elif part.filename.endswith(".pkl"):
                raise ValueError(f"its {part.filename} must have at most {_MOST_PICKLED:,} bytes")
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"the checksum of {damaged} in it differs")
        return [part.file_size for part in parts]


def _check_old(file: BinaryIO) -> None:
    file.seek(0)
    if (start := file.read(len(_ARCHIVE))) == _ARCHIVE:
        raise ValueError("it is an archive without its end, so copy or download it again")
    if start[:1] != _PROTOCOL:
        raise ValueError("it is neither a zip archive nor a pickle")
    file.seek(0)
    for _ in range(_PICKLES_OF_OLD):
        _check_pickle(file)


def _check_pickle(file: BinaryIO) -> None:
    """Refuse what lies too deep inside each other: the hash of a tuple in a tuple … takes exponential time."""
    depths: list[int] = []
    memo: dict[int, int] = {}
    marks: list[int] = []
    for opcode, argument in _operations(file):
        name = opcode.name
        if name == "GLOBAL" and len(argument) > _MOST_NAME:
            raise ValueError(f"a name in it must have at most {_MOST_NAME} letters; got {len(argument):,}")
        if name == "MARK":
            marks.append(len(depths))
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            depths.append(memo[int(argument)])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(argument)] = depths[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = depths[-1]
        else:
            _apply(opcode, depths, marks)
        if depths and depths[-1] > _MOST_INSIDE:
            raise ValueError(f"it must hold at most {_MOST_INSIDE} tuples inside each other")


def _apply(opcode: pickletools.OpcodeInfo, depths: list[int], marks: list[int]) -> None:
    """What an operation takes from the stack, and one more than the deepest of it for what it leaves there."""
    before = opcode.stack_before
    if pickletools.markobject in before:
        start = marks.pop()
        below = before.index(pickletools.markobject)
    else:
        start, below = len(depths) - len(before), 0
    taken = depths[start - below :]
    del depths[start - below :]
    deepest = 0 if opcode.name in _WITHOUT_HASH or not taken else 1 + max(taken)
    depths += [deepest] * len(opcode.stack_after)


def _operations(file: BinaryIO) -> Iterator[tuple[pickletools.OpcodeInfo, Any]]:
    return ((opcode, argument) for opcode, argument, _ in pickletools.genops(file))


def _check_tensors(content: Any, held: list[int] | None, size: int) -> None:
    """Refuse tensors that are not dense, and storages that are larger than what the file holds for them."""
    storages: dict[int, int] = {}
    for tensor in _tensors(content):
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            raise ValueError(f"its tensors must be dense and have values; got {tensor.layout} on {tensor.device}")
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    if held is None:
        if sum(storages.values()) > size:
            raise ValueError("its tensors are larger than the file")
        return
    sizes = set(held)
    if any(nbytes not in sizes for nbytes in storages.values()):
        raise ValueError("a tensor in it is larger than the values that it holds for it")


def _tensors(content: Any) -> Iterator[Tensor]:
    """The tensors in containers, each container once."""
    seen: set[int] = set()
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, Mapping) else value)


def _refusal(error: Exception) -> str:
    damaged = isinstance(error, LookupError)  # whose words are a bare number
    words = "its pickle is damaged" if damaged else " ".join(str(error).split())
    if forbidden := _FORBIDDEN.search(words):
        return (
            f"holds an object of {forbidden[1][:100]}, which is code that a file must not run: save the weights alone, "
            "torch.save(model.state_dict(), path)"
        )
    return f"cannot be read as a file of torch.save ({words[:200].rstrip('.') or type(error).__name__})"
