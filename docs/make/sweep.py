"""What each setting does: of a sweep around one recipe, a panel for every setting that was changed by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradreg.display.plot import COLOURS, GUIDE, new_figure
from gradreg.errors import DataError
from gradreg.report.tables.runs import Run, cost, middle
from gradreg.report.tables.settings import differences, setting, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = 1.55
_ACROSS = 4
# How many characters of names fit below a panel, in the size of its ticks.
_LABELS_WIDTH = 30


@dataclass(frozen=True)
class Sweep:
    """A setting, and the runs that differ in nothing else, in the order of its values; the middle is among them."""

    key: str
    values: tuple[Any, ...]
    runs: tuple[Run, ...]
    middle: Run


def sweeps(runs: Sequence[Run]) -> list[Sweep]:
    """Every setting that some run changed by itself."""
    base = middle(runs)
    changed: dict[str, list[Run]] = {}
    for run in runs:
        found = differences(run.settings, base.settings)
        if len(found) == 1:
            changed.setdefault(next(iter(found)), []).append(run)
    if not changed:
        raise DataError("No two of these runs differ in one setting alone, so there is no sweep to draw.")
    return [_sweep(key, base, found) for key, found in changed.items()]


def draw_sweep(runs: Sequence[Run], file: Path) -> Path:
    """The figure, as SVG, PNG or PDF by the file's ending."""
    from gradreg.report.charts.files import draw_one

    return draw_one(partial(panels, runs), [file])[0]


def panels(runs: Sequence[Run]) -> "Figure":
    """Clean accuracy hollow, accuracy under the probe filled, the cost of training above; one scale for all."""
    found = sweeps(runs)
    figure, grid = panel_grid(len(found), min(_ACROSS, len(found)), _PANEL, 1.75)
    for axes, sweep in zip(grid, found, strict=True):
        _panel(axes, sweep, runs)
    top = max(float(run.best["clean"]) for sweep in found for run in sweep.runs)
    grid[0].set_ylim(0, 1.3 * top)
    grid[0].yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    figure.supylabel("accuracy, held-out images", fontsize=6.5)
    legend = "hollow: clean, filled: under the probe; number: time of training × undefended"
    figure.suptitle(legend, fontsize=6, x=0.02, ha="left")
    return figure


def panel_grid(panels: int, across: int, width: float, height: float) -> tuple["Figure", list["Axes"]]:
    """So many panels in rows, of that size each, on one scale."""
    down = -(-panels // across)
    figure = new_figure(width * across + 0.4, height * down + 0.25)
    grid = list(figure.subplots(down, across, squeeze=False, sharey=True).flat)
    for axes in grid[panels:]:
        axes.set_axis_off()
    return figure, grid[:panels]


def _panel(axes: "Axes", sweep: Sweep, among: Sequence[Run]) -> None:
    at = range(len(sweep.runs))
    for key, colour, face in (("clean", COLOURS[0], "white"), ("probe", COLOURS[1], COLOURS[1])):
        heights = [float(run.best[key]) for run in sweep.runs]
        axes.plot(at, heights, color=colour, linestyle=joined(sweep), linewidth=0.8)
        axes.plot(at, heights, color=colour, linestyle="none", marker="o", markersize=4.5, markerfacecolor=face)
    for place, run in zip(at, sweep.runs, strict=True):
        ratio = cost(run, among)
        if ratio is not None:
            above = (place, float(run.best["clean"]))
            # On a patch of its own, so that no line of the grid runs through it.
            patch = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}
            axes.annotate(
                f"{ratio:.2f}×", above, (0, 5), textcoords="offset points", fontsize=6, ha="center", bbox=patch
            )
    mark_values(axes, sweep)
    axes.set_title(short(sweep.key), fontsize=7)
    axes.grid(axis="y", color=GUIDE, linewidth=0.3)


def joined(sweep: Sweep) -> str:
    """The style of a line through its points: from one name to the next there is no way to go."""
    return "-" if _are_numbers(sweep.values) else "none"


def mark_values(axes: "Axes", sweep: Sweep) -> None:
    """Below a panel, the setting of each run."""
    labels = tick_labels([setting(sweep.key, value) for value in sweep.values])
    axes.set_xticks(range(len(labels)), labels, fontsize=6)
    axes.set_xlim(-0.5, len(labels) - 0.5)


def tick_labels(names: Sequence[str]) -> list[str]:
    """Every second name a line lower, if they would overlap side by side."""
    crowded = len("  ".join(names)) > _LABELS_WIDTH
    return [f"\n{name}" if crowded and place % 2 else name for place, name in enumerate(names)]


def _sweep(key: str, middle: Run, changed: Sequence[Run]) -> Sweep:
    """Numbers in rising order; names stay in the order of the runs."""
    runs = [middle, *changed]
    values = [run.settings.get(key) for run in runs]
    order = list(range(len(runs)))
    if _are_numbers(values):
        order.sort(key=lambda i: values[i])  # type: ignore[arg-type,return-value]
    return Sweep(key, tuple(values[i] for i in order), tuple(runs[i] for i in order), middle)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) for value in values)
