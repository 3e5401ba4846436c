"""The tour: one small network on real digits, undefended and defended three ways, evaluated and compared on one page.

It runs the same commands that a user would, as many side by side as there are cores, and says which.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter

from rich.console import Console
from rich.table import Table

from gradreg.errors import GradregError
from gradreg.evaluation.files import load
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.shares import share_of
from gradreg.norms import THREATS as NORMS

# The longest first, so that no core is idle at the end.
_RECIPES = ("mnist5k-at", "mnist5k-linf", "mnist5k-l2", "mnist5k-undefended")
# Fewer than usual, since the tour is to be short: the report says how many.
_SAMPLES = 1_000
CALIBRATION = 160
SIGMA = 0.5
THREATS = ("l2", "linf")


class DemoError(GradregError):
    """A step of the tour that did not succeed."""


@dataclass(frozen=True)
class _Tour:
    """Where the tour's files go, and how much it does."""

    folder: Path
    images: int
    epochs: int
    seed: int
    data_dir: Path | None
    console: Console
    children: list["subprocess.Popen[str]"] = field(default_factory=list)

    def commands(self, recipe: str) -> list[list[str]]:
        """What a user would type after `gradreg`; a tour that was interrupted goes on where it was."""
        run = self.folder / recipe
        where = ["--data-dir", str(self.data_dir)] if self.data_dir else []
        again = ["--resume"] if (run / "config.toml").exists() else []
        train = ["train", recipe, "--run", str(run), *again, *where]
        train += ["--set", f"seed={self.seed}", "--set", f"epochs={self.epochs}"]
        evaluate = ["evaluate", str(run), "--images", str(self.images), "--attacks", "quick", "--seed", str(self.seed)]
        evaluate += ["--smoothing", str(SIGMA), "--samples", str(_SAMPLES), "--calibration-images", str(CALIBRATION)]
        return [train, [*evaluate, *where]]

    def run(self, recipe: str) -> None:
        """Train and evaluate one network."""
        for command in self.commands(recipe):
            self._say(f"$ gradreg {shlex.join(command)}")
            self._run(command, lambda line: self._say(f"  {recipe}: {line}"))

    def _run(self, command: list[str], tell: Callable[[str], None]) -> None:
        threads = max(1, (os.cpu_count() or 1) // len(_RECIPES))
        settings = {"OMP_NUM_THREADS": str(threads), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
        with TemporaryFile("w+") as complaints:
            with subprocess.Popen(
                [sys.executable, "-m", "gradreg", *command],
                env={**os.environ, **settings},
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            ) as child:
                self.children.append(child)
                for line in child.stdout or ():
                    tell(line.rstrip())
            if child.returncode:
                complaints.seek(0)
                said = complaints.read().strip().removeprefix("gradreg: ")
                raise DemoError(f"`gradreg {shlex.join(command)}` ended with status {child.returncode}: {said}")

    def stop(self) -> None:
        """End what is still running."""
        for child in self.children:
            child.terminate()

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def demo(
    folder: Path, images: int, epochs: int, seed: int, data_dir: Path | None, console: Console
) -> dict[str, Evaluation]:
    """Train, evaluate, write the report and say what it shows; the evaluations by recipe."""
    from gradreg.report import report

    start = perf_counter()
    tour = _Tour(folder, images, epochs, seed, data_dir, console)
    with ThreadPoolExecutor(min(len(_RECIPES), os.cpu_count() or 1)) as pool:
        try:
            for _ in pool.map(tour.run, _RECIPES):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            tour.stop()
            raise
    found = {recipe: load(folder / recipe / "evaluation") for recipe in reversed(_RECIPES)}
    page = report(found.values(), folder / "report.html")
    console.print(_table(found, images, seed))
    console.print(_moral(found), highlight=False, soft_wrap=True)
    seconds = perf_counter() - start
    console.print(f"All of it, with every caveat: {page.resolve().as_uri()} ({seconds:.0f} s)", soft_wrap=True)
    return found


def _table(found: dict[str, Evaluation], images: int, seed: int) -> Table:
    title = f"small network, mnist5k, {images} random test images, seed {seed}"
    table = Table(
        title=title,
        title_style="",
        caption="errors, clean and within that distance; mean distance in l2; mean gradient of the margin",
        min_width=60,
    )
    radii = next(iter(found.values())).data.usual_radius
    within = [f"{NORMS[name].symbol} {radii(name):g}" for name in THREATS]
    headings = ("", "clean", *within, "distance", "‖∇ℓ‖₂", "training")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "" else "right")
    for recipe, one in found.items():
        errors = [one.threats[name].robust_error(radii(name)).value for name in THREATS]
        shares = (f"{share:.1%}" for share in (share_of(one.wrong).value, *errors))
        hours = one.subject.hours
        bounded = one.threats["l2"].bounded
        slope = "–" if bounded is None else f"{float(bounded.gradient_norm.mean()):.2f}"
        training = "–" if hours is None else f"{3600 * hours:.0f} s"
        distance = f"{one.threats['l2'].mean_distance():.2f}"
        table.add_row(recipe.removeprefix("mnist5k-"), *shares, distance, slope, training)
    return table


def _moral(found: dict[str, Evaluation]) -> str:
    plain, robust = (found[name].threats["l2"].mean_distance() for name in ("mnist5k-undefended", "mnist5k-l2"))
    costs = [found[name].subject.hours for name in ("mnist5k-l2", "mnist5k-at")]
    cost = "" if None in costs else f", for {costs[0] / costs[1]:.0%} of the time of adversarial training"  # type: ignore[operator]
    return f"The l2 penalty pushed adversarial images {robust / plain:.1f} times further away{cost}."
