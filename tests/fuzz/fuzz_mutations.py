"""Damage of every kind to the files of a folder; the same random stream gives the same damage.

A new kind of damage is one more line in `MUTATIONS`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import fuzz_bytes as raw
import fuzz_meanings as meant
from fuzz_meanings import named


def always(path: Path) -> bool:
    """Any file can be damaged by bytes."""
    return True


Mutation = Callable[[Path, Path, Path, Random], str]
MUTATIONS: dict[str, tuple[Callable[[Path], bool], Mutation]] = {
    "flip": (always, raw.flip),
    "truncate": (always, raw.truncate),
    "cut": (always, raw.cut),
    "repeat": (always, raw.repeat),
    "overwrite": (always, raw.overwrite),
    "insert": (always, raw.insert),
    "exchange": (always, raw.exchange),
    "substitute": (always, raw.substitute),
    "misplace": (always, raw.misplace),
    **{f"json {i}": (named(".json"), meant.json_value) for i in range(6)},
    **{f"lines {i}": (named(".jsonl"), meant.lines_value) for i in range(6)},
    **{f"toml {i}": (named(".toml"), meant.toml_value) for i in range(6)},
    **{f"tensors {i}": (named(".safetensors"), meant.tensors_value) for i in range(9)},
    **{f"table {i}": (named(".csv"), meant.table_value) for i in range(4)},
    **{f"gzip {i}": (named(".gz"), meant.gzip_value) for i in range(4)},
    **{f"archive {i}": (named(".tar.gz"), meant.archive_value) for i in range(6)},
}  # those that know the meaning are there several times, to be as likely as the others together


def damage(folder: Path, other: Path, random: Random) -> str:
    """Mutate one file, seldom several, of a folder; `other` is one of the same kind made from something else."""
    said = []
    for _ in range(1 if random.random() < 0.8 else random.randint(2, 3)):
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        if not paths:
            break
        path = random.choice(paths)
        name = random.choice([name for name, (fits, _) in MUTATIONS.items() if fits(path)])
        words = MUTATIONS[name][1](path, folder, other, random)
        said.append(f"{name} {path.relative_to(folder)} {words}".strip())
    return "; ".join(said)


def copy(source: Path, target: Path) -> None:
    """A fresh copy of a sample."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
