"""Mutated files by the thousand: every reader refuses them in one sentence, or reads what they say.

    python tests/fuzz --cases 10000 --seed 0 [--only pool,run] [--json FILE]

What counts as a failure:

- foreign: an exception that is not a GradregError, MemoryError included (the address space is limited);
- hang: a case that takes longer than a few seconds;
- sentence: an error that has a line break, no end, or more than a thousand characters;
- accepted: a corruption that nobody notices. A file with a checksum must be refused or read as it was before. A file
  without one, or whose checksum was forged, must be refused or read as another parser reads it, within the ranges that
  such a file can have (`hold` of its format).
"""

import argparse
import faulthandler
import json
import os
import resource
import signal
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from types import FrameType
from typing import Any, NoReturn

import torch
from fuzz_formats import FORMATS
from fuzz_mutations import copy, damage
from fuzz_values import Format, plain

from gradreg.data import files
from gradreg.errors import GradregError

SECONDS = 10
MEBIBYTES = 1024


class HangError(BaseException):
    """Not an Exception, so that no reader takes it for a damaged file."""


@dataclass
class Outcome:
    """What the cases came to; `failures` says which, with the seed that repeats each."""

    cases: int = 0
    refused: int = 0
    unchanged: int = 0
    read: int = 0
    slowest: float = 0.0
    memory: int = 0
    by_format: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """A format with a pristine folder, another one of the same kind, and what the first is read as."""

    format: Format
    folder: Path
    other: Path
    first: Any
    original: Any
    """`first` as it is compared."""

    @classmethod
    def of(cls, format: Format, place: Path) -> "Sample":
        folder, other = place / "sample", place / "other"
        for seed, each in enumerate((folder, other)):
            each.mkdir(parents=True)
            format.make(each, seed)
        copy(folder, place / "read")  # some readers write beside what they read
        first = format.read(place / "read")
        return cls(format, folder, other, first, plain(first))


def case(sample: Sample, seed: str, place: Path, outcome: Outcome) -> None:
    """Damage a copy, read it, and judge what came of it."""
    random, format = Random(seed), sample.format
    copy(sample.folder, place)
    said = damage(place, sample.other, random)
    forged = format.seal is not None and random.random() < 0.5
    if forged and format.seal:
        with _limited():
            format.seal(place)
    sealed = (format.sealed or format.seal is not None) and not forged and _seals(place) >= _seals(sample.folder)
    where = f"{format.name}, seed {seed!r}{', forged' if forged else ''}: {said}"
    start = perf_counter()
    try:
        with _limited():
            value = format.read(place)
    except GradregError as error:
        outcome.refused += 1
        sentence = str(error)
        if "\n" in sentence or not sentence.endswith((".", "…", ")")) or len(sentence) > 1000:
            _fail(outcome, "sentence", where, sentence[:300])
    except HangError:
        _fail(outcome, "hang", where, f"more than {SECONDS} s")
    except Exception as error:
        _fail(outcome, "foreign", where, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    else:
        _judge(sample, value, sealed, place, where, outcome)
    outcome.cases += 1
    outcome.slowest = max(outcome.slowest, perf_counter() - start)
    outcome.by_format[format.name] += 1


def _judge(sample: Sample, value: Any, sealed: bool, place: Path, where: str, outcome: Outcome) -> None:
    if plain(value) == sample.original:
        outcome.unchanged += 1
        return
    if sealed and not _is_other(value, sample, place) and not sample.format.lesser(value, sample.first, sample.folder):
        _fail(outcome, "accepted", where, "a changed value has the checksum of another")
        return
    try:
        sample.format.hold(value, place)
        outcome.read += 1
    except Exception as error:
        _fail(outcome, "accepted", where, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _is_other(value: Any, sample: Sample, place: Path) -> bool:
    """Whether a folder was turned into another that is as whole, perhaps with damage that changes nothing."""
    if _contents(place) == _contents(sample.other):
        return True
    copy(sample.other, place.with_name("whole"))
    try:
        return bool(plain(value) == plain(sample.format.read(place.with_name("whole"))))
    except GradregError:
        return False


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _seals(folder: Path) -> int:
    """How many checksums the files have: one that was taken away turns a file into one of before checksums."""
    sealed = {name: data for name, data in _contents(folder).items() if name.endswith((".json", ".safetensors"))}
    return sum(b'"checksum"' in data for data in sealed.values())


def _fail(outcome: Outcome, kind: str, where: str, why: str) -> None:
    outcome.kinds[kind] += 1
    outcome.failures.append(f"{kind}: {where}: {why}")


class _limited:  # noqa: N801
    """Ends what takes too long. A loop in C that never returns to Python ends the process, with a traceback."""

    def __enter__(self) -> None:
        def hang(number: int, frame: FrameType | None) -> NoReturn:
            raise HangError

        self.before = signal.signal(signal.SIGALRM, hang)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        faulthandler.dump_traceback_later(6 * SECONDS, exit=True)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)
        faulthandler.cancel_dump_traceback_later()


def campaign(cases: int, seed: int, only: tuple[str, ...] = ()) -> Outcome:
    """That many cases, spread over the formats in turn; those that are slow to read get a tenth."""
    chosen = [each for each in FORMATS if not only or each.name in only]
    outcome = Outcome()
    with TemporaryDirectory() as place:
        samples = [Sample.of(each, Path(place) / str(row)) for row, each in enumerate(chosen)]
        before = _peak()
        _limit_memory()
        number = 0
        while outcome.cases < cases:
            sample = samples[number % len(samples)]
            turn, number = number // len(samples), number + 1
            if sample.format.slow and turn % 10 and not only:
                continue
            case(sample, f"{seed} {sample.format.name} {turn}", Path(place) / "case", outcome)
        outcome.memory = (_peak() - before) // 1024
    return outcome


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _limit_memory() -> None:
    """A gibibyte more than is in use now."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEBIBYTES * 2**20, resource.RLIM_INFINITY))


def isolate() -> None:
    """No network, no other program, one thread."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError("there is no network in tests")

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    files._opened = refuse


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="formats, with commas between them")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    isolate()
    found = campaign(given.cases, given.seed, tuple(name for name in given.only.split(",") if name))
    for line in found.failures[:200]:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(
        f"{found.cases} cases: {found.refused} refused, {found.unchanged} read as before, {found.read} read as they "
        f"say; {len(found.failures)} failures {dict(found.kinds)}; slowest {found.slowest:.1f} s, {found.memory} MiB\n"
    )
    if given.json:
        given.json.write_text(json.dumps(vars(found), indent=1))
    sys.exit(bool(found.failures))
