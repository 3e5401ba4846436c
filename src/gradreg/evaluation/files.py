"""An evaluation as a folder of three files that other programs can read.

evaluation.json          facts and figures, with a checksum of them and one of the table; written last
images.csv               one row per image
gallery.safetensors      a few images with the adversarial ones found for them
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from gradreg import storage
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_path, shown
from gradreg.codec import Tensors, join, split
from gradreg.errors import DataError
from gradreg.evaluation import table
from gradreg.evaluation.checks import check
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.summary import summary
from gradreg.reading import one_sentence, read_bytes, read_json
from gradreg.writing import naming, replacing

_FORMAT = "gradreg evaluation"
_VERSION = 1
FACTS, TABLE, GALLERY = "evaluation.json", "images.csv", "gallery.safetensors"
# The ledger of the stages, which other programs have no use for.
STATE = ".state"

_GALLERY_KIND = "gallery of an evaluation"
_DERIVED = "summary"
# A row has some 200 bytes for each threat.
_MOST_TABLE = 1 << 28
_AGAIN = "evaluate again"


@dataclass(frozen=True)
class _Table:
    """What evaluation.json says about images.csv."""

    sha256: str
    types: Mapping[str, str]


@validated
def save(evaluation: Evaluation, folder: str | os.PathLike[str]) -> None:
    """Write the folder; an evaluation that was there stays whole until this one is, and a full disk leaves it."""
    place = Path(folder)
    if len(evaluation) == 0:
        raise DataError("The evaluation holds no images, so there is nothing to save.")
    check(evaluation)
    plain, tensors = split(evaluation)
    pictures = {path: tensor for path, tensor in tensors.items() if ".gallery." in path}
    columns = table.take_columns(plain, {path: tensors[path] for path in tensors.keys() - pictures.keys()})
    text = table.dumps(columns).encode("utf-8", "surrogatepass")
    checksum = sha256(text).hexdigest()
    head = {"format": _FORMAT, "version": _VERSION, "images": len(evaluation)}
    files = {TABLE: {"sha256": checksum, "types": table.types(columns)}, GALLERY: bool(pictures)}
    derived = {"derived": "From images.csv, for the reader; not read back.", **summary(evaluation)}
    content = {**head, _DERIVED: derived, **plain, "files": files}
    with ExitStack() as renamed_last_to_first:
        aside = {
            name: renamed_last_to_first.enter_context(replacing(place / name))
            for name in (FACTS, GALLERY, TABLE)
            if name != GALLERY or pictures
        }
        with naming(place / FACTS):
            aside[FACTS].write_bytes(storage.json_bytes(storage.sealed(content)))
        if pictures:
            with naming(place / GALLERY):
                storage.write_aside(aside[GALLERY], _GALLERY_KIND, pictures, {TABLE: checksum})
        with naming(place / TABLE):
            aside[TABLE].write_bytes(text)
        # All of it could be written. From here to the last renaming the folder holds no evaluation.
        (place / FACTS).unlink(missing_ok=True)
        if not pictures:
            (place / GALLERY).unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Evaluation:
    """Read what `save` wrote; `path` is the folder or its evaluation.json."""
    given = check_path("path", path)
    place = given.parent if given.name == FACTS else given
    content = _facts(place)
    with one_sentence(place / FACTS, _AGAIN):
        files = join(Mapping[str, Any], content.pop("files"), {}, "files")
        described = join(_Table, files.pop(TABLE), {}, TABLE)
        pictures = join(bool, files.pop(GALLERY), {}, GALLERY)
        columns = table.loads(_table(place, described.sha256), described.types, content.pop("images"))
        tensors = table.put_columns(content, columns)
    if pictures:
        tensors |= _gallery(place, described.sha256)
    with one_sentence(place / FACTS, _AGAIN):
        evaluation: Evaluation = join(Evaluation, content, tensors)
        check(evaluation)
        unused = tensors.keys() - split(evaluation)[1].keys()
        if unused:
            raise DataError(f"{min(unused)!r} belongs to nothing in it.")
    return evaluation


def _facts(place: Path) -> dict[str, Any]:
    """The content of evaluation.json that makes an evaluation; what only says which file it is has been checked."""
    path = place / FACTS
    if not path.exists():
        raise DataError(f"{place} holds no finished evaluation (there is no {FACTS}): `gradreg evaluate` makes one.")
    with one_sentence(path, f"it may be truncated: {_AGAIN}"):
        content = read_json(path)
    if content.get("format") != _FORMAT:
        raise DataError(f"{path} is not an evaluation: `gradreg evaluate` makes one.")
    if content.get("version") != _VERSION:
        raise DataError(
            f"{path} is an evaluation of version {shown(content.get('version'))} and this gradreg reads version "
            f"{_VERSION}: read it with the gradreg that wrote it, or evaluate again."
        )
    content = storage.unsealed(content, path)
    del content["format"], content["version"]
    content.pop(_DERIVED, None)
    return content


def _table(place: Path, checksum: str) -> str:
    path = place / TABLE
    if not path.exists():
        raise DataError(f"{path} is missing: {FACTS} and {TABLE} belong together.")
    raw = read_bytes(path, _MOST_TABLE)
    if not raw:
        raise DataError(f"{path} is empty: evaluate again.")
    if sha256(raw).hexdigest() != checksum:
        raise DataError(f"{path} was changed or cut short since it was written (its checksum differs): evaluate again.")
    return raw.decode("utf-8", "surrogatepass")


def _gallery(place: Path, checksum: str) -> Tensors:
    path = place / GALLERY
    if not path.exists():
        raise DataError(f"{path} is missing: {FACTS} and {GALLERY} belong together.")
    tensors: dict[str, Tensor]
    tensors, facts = storage.read(path, _GALLERY_KIND)
    if facts.get(TABLE) != checksum:
        raise DataError(
            f"{path} belongs to another evaluation than the {FACTS} beside it: copy both, or evaluate again."
        )
    return tensors
