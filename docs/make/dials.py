"""The figure of the dials: how far a network with one setting changed is ahead of the one in the middle."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from docs.make.shootout import can_be_drawn
from docs.make.sweep import Sweep, joined, mark_values, panel_grid, sweeps
from docs.make.trials import trials_table
from docs.make.verdicts import Method, Verdict
from gradreg.display.plot import COLOURS, GUIDE
from gradreg.report.tables.contrast import difference
from gradreg.report.tables.layout import Table
from gradreg.report.tables.runs import Run
from gradreg.report.tables.settings import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACES = ("near", "far")
FIGURES = {f"docs/dials-{place}.svg": f"results/dials/{place}-*.json" for place in PLACES}
_ALT = "How far each setting is ahead of the recipe, clean and under attack, at the {place} radius"
_PANEL, _ACROSS = 1.3, 5
# Of the two accuracies, so that their intervals do not cover each other.
_ASIDE = 0.12


def dials_table(verdicts: Sequence[Verdict]) -> Table:
    """The figures that there are, and a row per network."""
    drawn = [place for place in PLACES if can_be_drawn(each for each in verdicts if each.name.startswith(place))]
    images = [f"![{_ALT.format(place=place)}](dials-{place}.svg)" for place in drawn]
    table = trials_table(verdicts)
    return replace(table, caption="\n\n".join([*images, table.caption]))


def draw_dials(verdicts: Sequence[Verdict], file: Path) -> Path:
    """The figure, as SVG, PNG or PDF by the file's ending."""
    from gradreg.report.charts.files import draw_one

    return draw_one(partial(panels, verdicts), [file])[0]


def panels(verdicts: Sequence[Verdict]) -> "Figure":
    """A panel per dial, in percentage points; clean accuracy hollow, under attack filled, one scale for all."""
    methods = {each.name: Method(each.name, (each,)) for each in verdicts}
    found = sweeps([Run(each.name, each.settings, ()) for each in verdicts])
    figure, grid = panel_grid(len(found), min(_ACROSS, len(found)), _PANEL, 1.6)
    for axes, sweep in zip(grid, found, strict=True):
        _panel(axes, sweep, methods)
    figure.supylabel("ahead, percentage points", fontsize=6.5)
    legend = "ahead of the recipe, where the lines cross; hollow: clean, filled: under standard attacks; bars: 95 %"
    figure.suptitle(legend, fontsize=6, x=0.02, ha="left")
    return figure


def _panel(axes: "Axes", sweep: Sweep, methods: dict[str, Method]) -> None:
    middle = methods[sweep.middle.name]
    axes.axhline(0, color=GUIDE, linewidth=0.6, zorder=1)
    for kind, colour, face, aside in (
        ("clean", COLOURS[0], "white", -_ASIDE),
        ("robust", COLOURS[1], COLOURS[1], _ASIDE),
    ):
        ahead = [difference(getattr(methods[run.name], kind), getattr(middle, kind)) for run in sweep.runs]
        places = [place + aside for place in range(len(ahead))]
        heights = [100 * each.value for each in ahead]
        errors = [100 * (each.high - each.value) for each in ahead]
        axes.plot(places, heights, color=colour, linestyle=joined(sweep), linewidth=0.7)
        axes.errorbar(
            places, heights, errors, color=colour, linestyle="none", elinewidth=0.7,
            marker="o", markersize=3.5, markerfacecolor=face,
        )  # fmt: skip
    mark_values(axes, sweep)
    axes.axvline(sweep.runs.index(sweep.middle), color=GUIDE, linewidth=0.6, zorder=1)
    axes.set_title(short(sweep.key), fontsize=7)
