"""A result in one file: tensors as safetensors, the rest as JSON in its header; written to the side, then renamed.

A checksum of all of it stands in the header, so that a file that a disk, a copy or an editor changed is refused. Files
of before there were checksums have none.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save, save_file
from torch import Tensor

from gradreg import tensorfiles
from gradreg.errors import ConfigError, DataError
from gradreg.reading import check_regular, json_table
from gradreg.writing import replacing

Facts = Mapping[str, Any]
_CHANGED = "was changed or damaged since it was written (its checksum differs)"
_CHECKSUM = "checksum"
_OURS = {"kind", "facts", _CHECKSUM}


def json_bytes(content: Any) -> bytes:
    """Indented JSON. What UTF-8 cannot hold (half a surrogate pair, from a file's name) is escaped as JSON does it."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, content: Any) -> None:
    """Save JSON; a crash half-way leaves the file that was there before."""
    with replacing(path) as temporary:
        temporary.write_bytes(json_bytes(content))


def write(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], facts: Facts) -> None:
    """Save; a crash half-way leaves the file that was there before."""
    with replacing(path) as temporary:
        write_aside(temporary, kind, tensors, facts)


def write_aside(temporary: Path, kind: str, tensors: Mapping[str, Tensor], facts: Facts) -> None:
    """Save to a new file, which `replacing` gave."""
    metadata = {"kind": kind, "facts": json.dumps(facts, ensure_ascii=False)}
    # Copies: safetensors refuses tensors that share memory, as tied weights do.
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    metadata[_CHECKSUM] = _digest(metadata, copies)
    temporary.touch()
    usual = temporary.stat().st_mode
    save_file(copies, temporary, metadata)
    temporary.chmod(usual)  # safetensors makes files that only their owner can read


def check_storable(tensors: Mapping[str, Any], remedy: str) -> None:
    """Refuse what a file of safetensors cannot hold, before there is anything to lose."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{name!r} must be a tensor to be saved; got {type(value).__name__}: {remedy}.")
        if value.is_quantized or value.layout != torch.strided or not _has_name(value.dtype):
            kind = str(value.layout if value.layout != torch.strided else value.dtype).removeprefix("torch.")
            raise ConfigError(f"{name!r} must be dense and of a type that safetensors has; got {kind}: {remedy}.")


@cache
def _has_name(dtype: torch.dtype) -> bool:
    try:
        return bool(save({"one": torch.empty(1, dtype=dtype, device="cpu")}))
    except (KeyError, ValueError, RuntimeError, SafetensorError):
        return False


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write` saved, on the CPU."""
    tensors, metadata = read_tensors(path, f"a {kind} file of gradreg")
    if metadata.get("kind") != kind:
        raise DataError(f"{path} holds no {kind}: it was written by something else, or for something else.")
    if metadata.keys() not in (_OURS, _OURS - {_CHECKSUM}):  # files of before there were checksums have none
        raise DataError(f"{path} is damaged: its header is not one of gradreg; delete it.")
    return tensors, json_table(metadata["facts"], f"The header of {path}", nonfinite=True)


def read_tensors(path: str | os.PathLike[str], what: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of any safetensors file that this machine can hold, on the CPU.

    Of a file that gradreg wrote the checksum must be right, whoever reads it.
    """
    check_memory(path, check_regular(path))
    tensors, metadata = tensorfiles.load(path, what)
    written = {name: words for name, words in metadata.items() if name != _CHECKSUM}
    if metadata.keys() == _OURS and metadata[_CHECKSUM] != _digest(written, tensors):
        raise DataError(f"{path} {_CHANGED}: restore it, or delete it.")
    return tensors, metadata


def check_memory(path: str | os.PathLike[str], size: int) -> None:
    """Refuse a file whose content this machine cannot hold."""
    if size > memory():
        raise DataError(f"{path} must fit into this machine's memory of {memory():,} bytes; got {size:,} bytes.")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with its checksum."""
    return {**content, _CHECKSUM: checksum(content)}


def unsealed(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The object without its checksum, which must be right; one of before there were checksums has none."""
    found = {name: value for name, value in content.items() if name != _CHECKSUM}
    if _CHECKSUM in content and content[_CHECKSUM] != checksum(found):
        raise DataError(f"{path} {_CHANGED}: restore it, or delete its {_CHECKSUM} to read it as it is.")
    return found


def checksum(content: Any) -> str:
    """The checksum of a JSON value, whatever the order of its keys and the spaces between them."""
    return blake2b(json.dumps(content, sort_keys=True, default=str).encode(), digest_size=32).hexdigest()


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Of everything in a file; each part is preceded by what it is, so that none can pass for another."""
    digest = blake2b(json.dumps(metadata, sort_keys=True).encode(), digest_size=32)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def memory() -> int:
    """Bytes of physical memory."""
    if not hasattr(os, "sysconf"):
        return 1 << 40
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
