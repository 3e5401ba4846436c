"""A result in one file: tensors as safetensors, the rest as JSON in its header; written to the side, then renamed."""

import json
import os
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from gradreg.errors import DataError

Facts = dict[str, object]


def write(path: str | Path, kind: str, tensors: dict[str, Tensor], facts: Facts) -> None:
    """Save; a crash half-way leaves the file that was there before."""
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    metadata = {"kind": kind, "facts": json.dumps(facts, ensure_ascii=False)}
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        aside.write_bytes(to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata))
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def read(path: str | Path, kind: str) -> tuple[dict[str, Tensor], Facts]:
    """What `write` saved, on the CPU."""
    try:
        with safe_open(path, "pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118, not a dict
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read as a {kind} file of gradreg: {error}.") from error
    if metadata.get("kind") != kind:
        raise DataError(f"{path} holds no {kind}: it was written by something else, or for something else.")
    facts: Facts = json.loads(metadata["facts"])
    return tensors, facts
