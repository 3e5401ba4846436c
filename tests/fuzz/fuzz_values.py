"""What a file format is to the campaign, how values are compared, and how checksums are forged."""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradreg import storage

Maker = Callable[[Path, int], None]
Reader = Callable[[Path], Any]
Hold = Callable[[Any, Path], None]


def _nothing(value: Any, folder: Path) -> None:
    """Nothing more than that it was read."""


def _never(value: Any, original: Any, sample: Path) -> bool:
    return False


@dataclass(frozen=True)
class Format:
    """One line per reader."""

    name: str
    make: Maker
    read: Reader
    hold: Hold = _nothing
    seal: Callable[[Path], None] | None = None
    """Writes the checksums of what is there, as somebody who forges a file would; None if there are none."""
    lesser: Callable[[Any, Any, Path], bool] = _never
    """Whether a value, though not that of the sample, is what is left of it without what may be missing."""
    sealed: bool = False
    """Whether what is read must be that of the sample, also without a `seal`."""
    slow: bool = False
    """Reading takes more than a few milliseconds."""


def plain(value: Any) -> Any:
    """A value to compare: tensors by type, shape and bits, NaN equal to itself."""
    if isinstance(value, Tensor):
        return (str(value.dtype), tuple(value.shape), value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    if isinstance(value, nn.Module):
        return plain(value.state_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return repr(value) if isinstance(value, float) else value


def seal_tensors(folder: Path) -> None:
    """New checksums for every file of tensors that can still be read."""
    for path in folder.rglob("*.safetensors"):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            tensors, metadata = storage.read_tensors(path, "a file")
            facts = json.loads(metadata["facts"])
        except Exception:
            continue
        storage.write(path, metadata.get("kind", ""), tensors, facts)


def seal_evaluation(folder: Path) -> None:
    """New checksums of the table, the gallery and the facts."""
    path = folder / "evaluation.json"
    if not all((folder / name).is_file() for name in ("evaluation.json", "images.csv", "gallery.safetensors")):
        return  # the damage put a pipe there, or nothing
    try:
        content = json.loads(path.read_bytes())
        digest = sha256((folder / "images.csv").read_bytes()).hexdigest()
        content["files"]["images.csv"]["sha256"] = digest
        tensors, metadata = storage.read_tensors(folder / "gallery.safetensors", "a gallery")
        storage.write(folder / "gallery.safetensors", metadata["kind"], tensors, {"images.csv": digest})
        content.pop("checksum", None)
        path.write_text(json.dumps({**content, "checksum": storage.checksum(content)}))
    except Exception:  # spoilt beyond what can be forged
        return
