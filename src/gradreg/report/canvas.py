"""What the figures have in common: their size, a model's colour and marker, the legend, and how axes are written.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; each model has a marker of its own besides.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gradreg.evaluation.record import Evaluation
from gradreg.norms import ThreatName

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.4
"""Inches: the width of a column of a two-column page."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GUIDE = "#b5b5b5"

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
_LONGEST_NAME = 36


def new_figure(width: float, height: float) -> "Figure":
    """A figure with a canvas of its own, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels_in_a_row(count: int, height: float) -> tuple["Figure", "list[Axes]"]:
    """Axes side by side, each a column wide."""
    figure = new_figure(COLUMN * count, height)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def drawn_names(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """Each model's name as it can be drawn."""
    return drawable(evaluation.subject.name for evaluation in evaluations)


def drawable(names: Iterable[str]) -> dict[str, str]:
    """Names without formulas and signs that the font lacks, and not too long."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont("DejaVu Sans")).get_charmap()
    drawn = {}
    for name in names:
        plain = "".join(sign if sign.isprintable() and ord(sign) in known else "?" for sign in name)
        short = plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 9]}…{plain[-8:]}"
        drawn[name] = short.replace("$", r"\$")
    return drawn


def marker_of(index: int, size: float) -> dict[str, Any]:
    """How the model of that index is drawn everywhere."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "markersize": size,
        "markeredgewidth": 0,
    }


def model_handles(names: dict[str, str], line: Any) -> "list[Artist]":
    """The legend's entries for models."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], **marker_of(i, 4), linestyle=line, label=name) for i, name in enumerate(names.values())]


def legend_below(figure: "Figure", handles: "list[Artist]") -> None:
    """Below the axes, where it covers nothing; the figure grows by its height."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(figure.get_figwidth() * 16 / (longest + 6))))
    rows = math.ceil(len(handles) / columns)
    figure.set_figheight(figure.get_figheight() + 0.14 * rows + 0.1)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.2, columnspacing=1.2)


def in_percent(axes: "Axes", which: str) -> None:
    """Write shares as percentages."""
    from matplotlib.ticker import FuncFormatter

    getattr(axes, f"{which}axis").set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def in_distances(axes: "Axes", which: str, threat: ThreatName, end: float) -> None:
    """l∞ distances in steps of pixel values."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    if threat != "linf":
        return
    step = next((step for step in (1, 2, 4, 8, 16, 32) if end * 255 / step <= 7), 64)
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(MultipleLocator(step / 255))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{round(255 * x)}/255" if x else "0"))


def in_decades(axes: "Axes") -> None:
    """Write both logarithmic axes with two numbers a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        axis.set_minor_formatter(NullFormatter())
