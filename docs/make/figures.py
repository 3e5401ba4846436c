"""The figures of docs: from which results each is drawn, and how."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.make.dials import FIGURES as DIALS
from docs.make.dials import draw_dials
from docs.make.fill import folders
from docs.make.scatter import draw_shootout
from docs.make.shootout import FIGURE, RECORDS, can_be_drawn
from docs.make.sweep import draw_sweep
from docs.make.verdicts import Verdict, read_verdicts
from gradreg.evaluation.files import FACTS
from gradreg.report.charts.files import draw
from gradreg.report.tables.runs import read
from gradreg.report.writing import compare
from gradreg.runs.directory import CONFIG
from gradreg.writing import replacing


def redraw(name: str, root: Path) -> bool:
    """Draw one of `FIGURES` again; whether that changed its file."""
    new, target = FIGURES[name](root), root / name
    if new is None or (target.is_file() and target.read_bytes() == new):
        return False
    with replacing(target) as aside:
        aside.write_bytes(new)
    return True


def _of_report(figure: str, pattern: str, root: Path) -> bytes:
    """A figure that a report on these evaluations has."""
    return _report_figures(pattern, root)[figure]


@cache
def _report_figures(pattern: str, root: Path) -> Mapping[str, bytes]:
    """All of them by name, as SVG; drawn once for the documents that show several."""
    comparison = compare(folders([pattern], root, FACTS, "evaluation"))
    with TemporaryDirectory() as folder:
        return {file.stem: file.read_bytes() for file in draw(comparison, Path(folder), ["svg"])}


def _of_runs(pattern: str, root: Path) -> bytes:
    """What each setting does in these runs."""
    runs = [read(place) for place in folders([pattern], root, CONFIG, "run")]
    with TemporaryDirectory() as folder:
        return draw_sweep(runs, Path(folder) / "sweep.svg").read_bytes()


def _of_verdicts(drawn: Callable[[Sequence[Verdict], Path], Path], pattern: str, root: Path) -> bytes | None:
    """Of judged networks, as soon as there are some."""
    found = read_verdicts([pattern], root)
    if not can_be_drawn(found):
        return None
    with TemporaryDirectory() as folder:
        return drawn(found, Path(folder) / "figure.svg").read_bytes()


FIGURES: Mapping[str, Callable[[Path], bytes | None]] = {
    # Without N-FGSM, which would lie on top of the penalty in every step.
    "docs/cost.svg": partial(_of_report, "cost", "results/cifar10/cifar10-[!n]*"),
    "docs/paper-l2.svg": partial(_of_report, "figure-1-l2", "results/paper/*"),
    "docs/paper-linf.svg": partial(_of_report, "figure-1-linf", "results/paper/*"),
    "docs/sweep.svg": partial(_of_runs, "results/sweep/*"),
    FIGURE: partial(_of_verdicts, draw_shootout, RECORDS),
    **{figure: partial(_of_verdicts, draw_dials, pattern) for figure, pattern in DIALS.items()},
}
"""By path from the checkout: from the checkout to the bytes of the figure; None as long as it has no results."""
