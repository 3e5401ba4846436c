"""Commands killed at random instants, again and again, and then left alone: the result is that of one left in peace.

    python tests/faults/kill_campaign.py --kills 100 --seed 0 [--only train,demo] [--json FILE]

A chain is a command that is killed (SIGKILL) one to four times, each time at an instant drawn from the time that it
takes undisturbed, and typed again each time. Of a command with others below it, it alone is killed or all of them.
Now and then a process is stopped and continued (SIGSTOP, SIGCONT) before. What counts as a failure:

- said: a command said more than one sentence, or showed a traceback;
- lost: something that was finished before a kill is gone, or damaged, afterwards;
- status: a command that is left alone does not end with status 0;
- result: what it made differs from what was made undisturbed, except for times, or locks and temporary files are left.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from kill_works import OLD_PAGE, Work, evaluate_command, train_command, works

SECONDS = 600
PAUSE = 0.2  # seconds that a stopped process stands still


@dataclass
class Outcome:
    """What the kills came to; `failures` says which chain, with the seed that repeats it."""

    kills: int = 0
    chains: int = 0
    stops: int = 0
    by_work: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def fail(self, kind: str, where: str, why: str) -> None:
        """Note a failure."""
        self.kinds[kind] += 1
        self.failures.append(f"{kind}: {where}: {why}")


@dataclass(frozen=True)
class Peace:
    """What a command makes undisturbed, and how long that takes."""

    work: Work
    result: Any
    seconds: float

    @classmethod
    def of(cls, work: Work, folder: Path) -> "Peace":
        """Run it in a fresh folder."""
        work.prepare(folder)
        start = time.monotonic()
        subprocess.run(work.command(folder), cwd=folder, check=True, capture_output=True, timeout=SECONDS)
        seconds = time.monotonic() - start
        return cls(work, work.result(folder), seconds)


def chain(peace: Peace, seed: str, folder: Path, outcome: Outcome, most: int) -> None:
    """Kill a command up to `most` times, then leave it alone and compare."""
    random, work = Random(seed), peace.work
    work.prepare(folder)
    finished, where = work.kept(folder), f"{work.name}, seed {seed!r}"
    outcome.chains += 1
    for _ in range(min(most, random.randint(1, 4))):
        life, killed = Life(work, folder), False
        try:
            life.wait(random.uniform(0, peace.seconds / 2))
            if random.random() < 0.25:
                outcome.stops += life.pause()
            life.wait(random.uniform(0, peace.seconds / 2))
            killed = life.kill(everyone=random.random() < 0.5)
        finally:
            said = life.end()
        _judge_words(said, where, outcome)
        finished = _judge_kept(work, folder, finished, where, outcome)
        if not killed:
            break
        outcome.kills += 1
        outcome.by_work[work.name] += 1
    done = subprocess.run(work.command(folder), cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    _judge_words(done.stderr, where, outcome)
    if done.returncode:
        outcome.fail("status", where, f"{done.returncode}: {done.stderr[-500:]}")
        return
    _judge_kept(work, folder, finished, where, outcome)
    if (found := work.result(folder)) != peace.result:
        outcome.fail("result", where, _difference(peace.result, found))


class Life:
    """One process of a command, with whatever it starts, in a group of its own."""

    def __init__(self, work: Work, folder: Path) -> None:
        self.errors = folder.with_name(f"{folder.name}.errors").open("w+")
        self.process = subprocess.Popen(
            work.command(folder), cwd=folder, stdout=subprocess.DEVNULL, stderr=self.errors, start_new_session=True
        )

    def wait(self, seconds: float) -> None:
        """Let it live so long, unless it ends before."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def pause(self) -> bool:
        """Stop it and let it go on; whether it was there to be stopped."""
        if self.process.poll() is not None:
            return False
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE)
        self.process.send_signal(signal.SIGCONT)
        return True

    def kill(self, *, everyone: bool) -> bool:
        """Kill it, alone or with all that it started; whether it was still there."""
        if self.process.poll() is not None:
            return False
        if everyone:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        return self.process.wait(SECONDS) == -signal.SIGKILL

    def end(self) -> str:
        """What it said on stderr; nothing of it runs on because of a failure in between."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        with self.errors as said:
            said.seek(0)
            return said.read()


def _judge_words(said: str, where: str, outcome: Outcome) -> None:
    # `report` says on stderr where it wrote to, in a line per place.
    told = [line for line in said.splitlines() if not line.endswith((".html.", " are in figures."))]
    if len(told) > 1 or "Traceback" in said:
        outcome.fail("said", where, said[-500:])


def _judge_kept(work: Work, folder: Path, before: set[str], where: str, outcome: Outcome) -> set[str]:
    try:
        now = work.kept(folder)
    except Exception as error:
        outcome.fail("lost", where, f"{type(error).__name__}: {error}")
        return before
    if gone := sorted(before - now):
        outcome.fail("lost", where, f"{gone[0]} ({len(gone)} in total)")
    return now


def _difference(one: Any, two: Any, at: str = "") -> str:
    """The first place where two results differ."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        return next(_difference(one[key], two[key], f"{at}.{key}") for key in one if one[key] != two[key])
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return next(
            _difference(*pair, f"{at}[{i}]") for i, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1]
        )
    return f"{at}: {str(one)[:200]!r}, then {str(two)[:200]!r}"


def campaign(kills: int, seed: int, chosen: list[Work], place: Path) -> Outcome:
    """That many kills, in chains of the works in turn."""
    outcome = Outcome()
    undisturbed = [Peace.of(work, place / f"{work.name}-undisturbed") for work in chosen]
    while outcome.kills < kills:
        turn = outcome.chains
        peace = undisturbed[turn % len(undisturbed)]
        name = f"{seed} {peace.work.name} {turn}"
        chain(peace, name, place / f"{peace.work.name}-{turn}", outcome, kills - outcome.kills)
    return outcome


def prepared(place: Path) -> list[Work]:
    """The works, after what they start from was made."""
    trained, evaluated = place / "trained", place / "evaluated"
    trained.mkdir()
    subprocess.run(train_command(trained), cwd=trained, check=True, capture_output=True)
    subprocess.run(["cp", "-r", trained, evaluated], check=True)
    subprocess.run(evaluate_command(evaluated), cwd=evaluated, check=True, capture_output=True)
    (evaluated / "report.html").write_text(OLD_PAGE)
    return works(trained, evaluated)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands, with commas between them")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    only = [name for name in given.only.split(",") if name]
    start = time.monotonic()
    with TemporaryDirectory() as place:
        chosen = [work for work in prepared(Path(place)) if not only or work.name in only]
        found = campaign(given.kills, given.seed, chosen, Path(place))
    for line in found.failures:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(
        f"{found.kills} kills {dict(found.by_work)} in {found.chains} chains, {found.stops} stops: "
        f"{len(found.failures)} failures {dict(found.kinds)}; {time.monotonic() - start:.0f} s\n"
    )
    if given.json:
        given.json.write_text(json.dumps(vars(found), indent=1))
    sys.exit(bool(found.failures))


if __name__ == "__main__":
    main()
