"""The tour: one small network on real digits, undefended and defended, evaluated and compared on one page.

It runs the same commands that a user would, as many side by side as there are cores, and says which.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, Natural
from gradreg.config.fractions import radius_name
from gradreg.display.numbers import interval, percent
from gradreg.display.terminal import Curves, bar
from gradreg.errors import GradregError
from gradreg.evaluation.files import load
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.evaluation.shares import Share, share_of

_UNDEFENDED, _DEFENDED, _HEADLINE = "mnist5k-undefended", "mnist5k-linf", "linf"
# So that a terminal of 80 columns has room for all.
_BAR = 7
# A command of the tour: it ends when nobody holds the other end of its stdin any more, as when the tour is killed.
_CHILD = """
import os, sys, threading
threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
sys.argv[0] = "gradreg"
from gradreg.cli import main
main()
"""


class DemoError(GradregError):
    """A step of the tour that did not succeed."""


@dataclass(frozen=True)
class _Size:
    """How much a tour does."""

    recipes: tuple[str, ...]
    """The longest first, so that no core is idle at the end."""
    threats: tuple[str, ...]
    images: int
    epochs: int
    more: tuple[str, ...]
    """Options of each evaluation, besides."""


_BOUNDS = ("--attacks", "quick", "--regularity", "ascent", "--calibration-images", "160")
_WHOLE = _Size(
    ("mnist5k-at", _DEFENDED, "mnist5k-l2", _UNDEFENDED),
    ("l2", "linf"),
    1000,
    6,
    # Fewer samples than usual, since the tour is to be short: the report says how many.
    (*_BOUNDS, "--smoothing", "0.5", "--samples", "200"),
)
_FAST = _Size((_DEFENDED, _UNDEFENDED), (_HEADLINE,), 500, 4, _BOUNDS)


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Options of the tour, the same in Python and on the command line."""

    out: Path = Path("runs/demo")
    """Where its runs, evaluations and report.html go; started again there, it resumes."""
    fast: bool = False
    """Two networks and one threat only, in less than a minute."""
    images: Count | None = None
    """Test images to evaluate on; default: all 1000, or 500 with --fast."""
    epochs: Count | None = None
    """Of each training: equal, so that costs compare; default: 6, or 4 with --fast."""
    seed: Natural = 0
    """Of the trainings, the selection of images and the attacks."""
    data_dir: Path | None = None
    """Where data sets are stored; default: $GRADREG_DATA, or the user's cache folder."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def _size(self) -> _Size:
        return _FAST if self.fast else _WHOLE

    @property
    def recipes(self) -> tuple[str, ...]:
        """What is trained, the longest first."""
        return self._size.recipes

    def commands(self, recipe: str) -> list[list[str]]:
        """What a user would type after `gradreg`; a tour that was interrupted goes on where it was."""
        size, run = self._size, self.out / recipe
        where = ["--data-dir", str(self.data_dir)] if self.data_dir else []
        again = ["--resume"] if (run / "config.toml").exists() else []
        train = ["train", recipe, "--run", str(run), *again, *where]
        train += ["--set", f"seed={self.seed}", "--set", f"epochs={self.epochs or size.epochs}"]
        evaluate = [
            "evaluate",
            str(run),
            "--threat",
            ",".join(size.threats),
            "--images",
            str(self.images or size.images),
        ]
        return [train, [*evaluate, *size.more, "--seed", str(self.seed), *where]]


@dataclass(frozen=True)
class _Tour:
    """A tour under way."""

    options: DemoOptions
    console: Console
    children: list["subprocess.Popen[str]"] = field(default_factory=list)

    def run(self, recipe: str) -> None:
        """Train and evaluate one network."""
        for command in self.options.commands(recipe):
            self._say(f"$ gradreg {shlex.join(command)}")
            self._run(command, lambda line: self._say(f"  {recipe}: {line}"))

    def _run(self, command: list[str], tell: Callable[[str], None]) -> None:
        threads = max(1, (os.cpu_count() or 1) // len(self.options.recipes))
        settings = {"OMP_NUM_THREADS": str(threads), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
        with TemporaryFile("w+") as complaints:
            with subprocess.Popen(
                [sys.executable, "-c", _CHILD, *command],
                env={**os.environ, **settings},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            ) as child:
                self.children.append(child)
                for line in child.stdout or ():
                    tell(line.rstrip())
            if child.returncode:
                complaints.seek(0)
                said = complaints.read().strip().removeprefix("gradreg: ") or "it was killed, so start the tour again."
                raise DemoError(f"`gradreg {shlex.join(command)}` ended with status {child.returncode}: {said}")

    def stop(self) -> None:
        """End what is still running."""
        for child in self.children:
            child.terminate()

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def demo(options: DemoOptions, console: Console) -> dict[str, Evaluation]:
    """Train, evaluate, write the report and say what it shows; the evaluations by recipe."""
    from gradreg.report import report

    start, recipes = perf_counter(), options.recipes
    tour = _Tour(options, console)
    with ThreadPoolExecutor(min(len(recipes), os.cpu_count() or 1)) as pool:
        try:
            for _ in pool.map(tour.run, recipes):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            tour.stop()
            raise
    found = {recipe: load(options.out / recipe / "evaluation") for recipe in reversed(recipes)}
    page = report(found.values(), options.out / "report.html")
    plain = console.options.ascii_only
    console.print(_table(found, options.seed, plain))
    console.print(_curves(found).text(plain), soft_wrap=True)
    console.print(f"\n{moral(found)}", highlight=False, soft_wrap=True)
    seconds = perf_counter() - start
    console.print(f"All of it, with every caveat: {page.resolve().as_uri()} ({seconds:.0f} s)", soft_wrap=True)
    return found


def moral(found: Mapping[str, Evaluation]) -> str:
    """What the tour shows, in one sentence with its intervals; whether they overlap is looked at, not assumed."""
    radius = found[_DEFENDED].data.usual_radius(_HEADLINE)
    robust, plain = (found[name].threats[_HEADLINE].robust_accuracy(radius) for name in (_DEFENDED, _UNDEFENDED))
    hours = [found[name].subject.hours for name in (_DEFENDED, _UNDEFENDED)]
    cost = f", {hours[0] / hours[1]:.1f} times as long as without," if hours[0] and hours[1] else ""
    symbol = found[_DEFENDED].threats[_HEADLINE].symbol
    separate = "do not overlap" if plain.high < robust.low or robust.high < plain.low else "overlap, so it shows little"
    return (
        f"Trained with the gradient penalty{cost} the network is right within {symbol} {radius_name(radius)} of "
        f"{_words(robust)} of {robust.n} test images; undefended, of {_words(plain)}. The 95 % intervals {separate}."
    )


def _words(share: Share) -> str:
    return f"{percent(share.value)} ({interval(share.low, share.high)})"


def _table(found: Mapping[str, Evaluation], seed: int, plain: bool) -> Table:
    """Clean and robust accuracy as bars, with 95 % intervals."""
    first = next(iter(found.values()))
    table = Table(
        title=f"accuracy of small networks on {len(first)} random test images of {first.data.name}, seed {seed}",
        title_style="",
        caption="below each accuracy its 95 % Clopper-Pearson interval",
        min_width=60,
    )
    balls = [f"{record.symbol} {first.data.usual_radius(name):g}" for name, record in first.threats.items()]
    for heading in ("", "clean", *(f"within {ball}" for ball in balls), "training"):
        table.add_column(heading, justify="left")
    for line, (recipe, one) in enumerate(found.items()):
        robust = [record.robust_accuracy(one.data.usual_radius(name)) for name, record in one.threats.items()]
        hours = one.subject.hours
        training = "–" if hours is None else f"{3600 * hours:.0f} s"
        cells = [_cell(each, line, plain) for each in (share_of(~one.wrong), *robust)]
        table.add_row(recipe.removeprefix("mnist5k-"), *cells, training)
    return table


def _cell(share: Share, line: int, plain: bool) -> Text:
    drawn = bar(share.value, _BAR, line, plain)
    return Text.assemble(f"{percent(share.value):>7} ", drawn, (f"\n{interval(share.low, share.high)}", "dim"))


def _curves(found: Mapping[str, Evaluation]) -> Curves:
    """Robust accuracy against distance under the threat of the last sentence, past the radii that are quoted."""
    records = {name.removeprefix("mnist5k-"): one.threats[_HEADLINE] for name, one in found.items()}
    first = next(iter(found.values()))
    end = 2 * first.data.usual_radius(_HEADLINE)
    return Curves(
        f"robust accuracy within {first.threats[_HEADLINE].symbol} distance",
        [(name, partial(_accuracy, record)) for name, record in records.items()],
        end,
        [(eps, f"{eps:g}") for eps in (0.0, end / 4, end / 2, 3 * end / 4, end)],
    )


def _accuracy(record: ThreatRecord, eps: float) -> float:
    return float(record.robust(eps).double().mean())
