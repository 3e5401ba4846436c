"""A result in one file: tensors as safetensors, the rest as JSON in its header; written to the side, then renamed."""

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gradreg.errors import DataError

Facts = Mapping[str, Any]
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it takes the place of `path` only if nothing went wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what a kill in the middle of `replacing` left behind."""
    for path in folder.glob(".*"):
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _json_bytes(content: Any) -> bytes:
    """Indented JSON. What UTF-8 cannot hold (half a surrogate pair, from a file's name) is escaped as JSON does it."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, content: Any) -> None:
    """Save JSON; a crash half-way leaves the file that was there before."""
    with replacing(path) as temporary:
        temporary.write_bytes(_json_bytes(content))


def write(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], facts: Facts) -> None:
    """Save; a crash half-way leaves the file that was there before."""
    metadata = {"kind": kind, "facts": json.dumps(facts, ensure_ascii=False)}
    # Copies: safetensors refuses tensors that share memory, as tied weights do.
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with replacing(Path(path)) as temporary:
        temporary.touch()
        usual = temporary.stat().st_mode
        save_file(copies, temporary, metadata)
        temporary.chmod(usual)  # safetensors makes files that only their owner can read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write` saved, on the CPU."""
    try:
        with safe_open(path, "pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118, not a dict
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read as a {kind} file of gradreg: {error}.") from error
    if metadata.get("kind") != kind:
        raise DataError(f"{path} holds no {kind}: it was written by something else, or for something else.")
    try:
        facts = json.loads(metadata["facts"])
    except (KeyError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: its header cannot be read ({type(error).__name__}); delete it.") from error
    if not isinstance(facts, dict):
        raise DataError(f"{path} is damaged: its header is not a table; delete it.")
    return tensors, facts
