"""An evaluation as a folder of three files that other programs can read.

evaluation.json          facts and figures, and the checksum of the table; written last
images.csv               one row per image
gallery.safetensors      a few images with the adversarial ones found for them
"""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from gradreg import storage
from gradreg.codec import Tensors, join, split
from gradreg.errors import DataError
from gradreg.evaluation import table
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.summary import summary

_FORMAT = "gradreg evaluation"
_VERSION = 1
FACTS, TABLE, GALLERY = "evaluation.json", "images.csv", "gallery.safetensors"
# The ledger of the stages, which other programs have no use for.
STATE = ".state"

_GALLERY_KIND = "gallery of an evaluation"


def save(evaluation: Evaluation, folder: str | os.PathLike[str]) -> None:
    """Write the folder; until it is complete there is no evaluation.json in it."""
    place = Path(folder)
    if len(evaluation) == 0:
        raise DataError("The evaluation holds no images, so there is nothing to save.")
    plain, tensors = split(evaluation)
    pictures = {path: tensor for path, tensor in tensors.items() if ".gallery." in path}
    columns = table.take_columns(plain, {path: tensors[path] for path in tensors.keys() - pictures.keys()})
    text = table.dumps(columns).encode("utf-8", "surrogatepass")
    checksum = sha256(text).hexdigest()
    head = {"format": _FORMAT, "version": _VERSION, "images": len(evaluation)}
    files = {TABLE: {"sha256": checksum, "types": table.types(columns)}, GALLERY: bool(pictures)}
    derived = {"derived": "From images.csv, for the reader; not read back.", **summary(evaluation)}
    content = {**head, "summary": derived, **plain, "files": files}
    try:
        (place / FACTS).unlink(missing_ok=True)
        _replace(place / TABLE, text)
        if pictures:
            storage.write(place / GALLERY, _GALLERY_KIND, pictures, {TABLE: checksum})
        else:
            (place / GALLERY).unlink(missing_ok=True)
        storage.write_json(place / FACTS, content)
    except OSError as error:
        raise DataError(f"The evaluation could not be written to {place} ({error}): choose another folder.") from error


def load(path: str | os.PathLike[str]) -> Evaluation:
    """Read what `save` wrote; `path` is the folder or its evaluation.json."""
    given = Path(path)
    place = given.parent if given.name == FACTS else given
    content = _facts(place)
    try:
        described = content.pop("files")
        checksum, types = described[TABLE]["sha256"], dict(described[TABLE]["types"])
        columns = table.loads(_table(place, checksum), types, content["images"])
        tensors = table.put_columns(content, columns)
        if described[GALLERY]:
            tensors |= _gallery(place, checksum)
        evaluation: Evaluation = join(Evaluation, content, tensors)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"{place / FACTS} is damaged ({type(error).__name__}: {error}): evaluate again.") from error
    return evaluation


def _facts(place: Path) -> dict[str, Any]:
    path = place / FACTS
    if not path.is_file():
        raise DataError(f"{place} holds no finished evaluation (there is no {FACTS}): `gradreg evaluate` makes one.")
    raw = path.read_bytes()
    if not raw.strip():
        raise DataError(f"{path} is empty: evaluate again.")
    try:
        content = json.loads(raw)
    except ValueError as error:
        raise DataError(f"{path} is no JSON, so it is truncated or was never an evaluation ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise DataError(f"{path} is not an evaluation: `gradreg evaluate` makes one.")
    if content.get("version") != _VERSION:
        raise DataError(
            f"{path} is an evaluation of version {content.get('version')!r} and this gradreg reads version {_VERSION}: "
            "read it with the gradreg that wrote it, or evaluate again."
        )
    return content


def _table(place: Path, checksum: str) -> str:
    path = place / TABLE
    if not path.is_file():
        raise DataError(f"{path} is missing: {FACTS} and {TABLE} belong together.")
    raw = path.read_bytes()
    if not raw:
        raise DataError(f"{path} is empty: evaluate again.")
    if sha256(raw).hexdigest() != checksum:
        raise DataError(f"{path} was changed or cut short since it was written (its checksum differs): evaluate again.")
    return raw.decode("utf-8", "surrogatepass")


def _gallery(place: Path, checksum: str) -> Tensors:
    path = place / GALLERY
    if not path.is_file():
        raise DataError(f"{path} is missing: {FACTS} and {GALLERY} belong together.")
    tensors: dict[str, Tensor]
    tensors, facts = storage.read(path, _GALLERY_KIND)
    if facts.get(TABLE) != checksum:
        raise DataError(
            f"{path} belongs to another evaluation than the {FACTS} beside it: copy both, or evaluate again."
        )
    return tensors


def _replace(path: Path, content: bytes) -> None:
    with storage.replacing(path) as temporary:
        temporary.write_bytes(content)
