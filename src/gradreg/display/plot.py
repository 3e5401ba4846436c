"""Charts drawn with matplotlib for files, with its objects and none of its global state.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; each model has a marker of its own besides.
"""

import math
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gradreg.display.charts import Axis, Chart, Figure, Key, Series, bars, legend_of, vertices
from gradreg.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GUIDE = "#b5b5b5"

_COLUMN = 3.4
"""Inches: the width of a column of a two-column page."""
_MARKERS = ("o", "s", "^", "D", "v")
_LINES: dict[str, Any] = {
    "solid": "-",
    "dash-dotted": (0, (6, 1.2, 1, 1.2)),
    "dashed": (0, (4, 1.5)),
    "dotted": (0, (1, 1.2)),
    "hollow": "-",
}
_LONGEST = 36
_SIZE = 6.5
"""Points: of letters of which 16 are an inch, in lines of 0.14 inches."""


def new_figure(width: float, height: float) -> "Drawing":
    """A figure with a canvas of its own, in inches; notebooks show it without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawing)
    drawing._repr_png_ = partial(_png, drawing)  # type: ignore[attr-defined]
    return drawing


def _png(drawing: "Drawing") -> bytes:
    file = BytesIO()
    drawing.savefig(file, format="png", dpi=150)
    return file.getvalue()


def plot(figure: Figure) -> "Drawing":
    """The charts in their rows, each a column wide, above one legend."""
    need("matplotlib", "A plot")
    across, down = len(figure.rows[0]), len(figure.rows)
    drawing = new_figure(_COLUMN * across, figure.height * down)
    panels = drawing.subplots(down, across, squeeze=False)
    charts = [chart for row in figure.rows for chart in row]
    for axes, chart in zip(panels.flat, charts, strict=True):
        if chart is None:
            axes.set_axis_off()
        else:
            _draw(axes, chart, titled=len(charts) > 1)
    _legend_below(drawing, legend_of([chart for chart in charts if chart is not None]))
    return drawing


def _draw(axes: "Axes", chart: Chart, titled: bool) -> None:
    for which, axis in (("x", chart.x), ("y", chart.y)):
        _set_axis(axes, which, axis)
    for value, name in chart.guides:
        axes.axvline(value, color=GUIDE, linewidth=0.5, zorder=0)
        place: Any = ("data", "axes fraction")
        # Above the marks that lie on the upper edge of the frame.
        above: dict[str, Any] = {"xytext": (0, 2.5), "textcoords": "offset points"}
        axes.annotate(name, (value, 1), xycoords=place, ha="center", va="bottom", fontsize=5.5, **above)
    for series in chart.series:
        _series(axes, series, chart)
    title = [_drawable(line) for line in (chart.title if titled else "", chart.note) if line]
    axes.set_title("\n".join(title), fontsize=6, loc="left", pad=3)


def _set_axis(axes: "Axes", which: str, axis: Axis) -> None:
    scale = {"scale": "log"} if axis.log else {}
    limits = {"lim": (axis.low, axis.high), "label": _drawable(axis.label), **scale}
    # The scale first: a new one forgets ticks and limits.
    for name, value in reversed(limits.items()):
        getattr(axes, f"set_{which}{name}")(value)
    getattr(axes, f"set_{which}ticks")([value for value, _ in axis.ticks], [_drawable(name) for _, name in axis.ticks])
    getattr(axes, f"{which}axis").minorticks_off()


def _series(axes: "Axes", series: Series, chart: Chart) -> None:
    colour = GUIDE if series.model is None else COLOURS[series.model % len(COLOURS)]
    # Below the end of a logarithmic axis a point is drawn on the edge.
    x, y = (
        [max(value, axis.low) if axis.log else value for value in values]
        for values, axis in ((series.x, chart.x), (series.y, chart.y))
    )
    match series.kind:
        case "steps" | "line":
            width = 0.8 if series.model is None else 1.3 if series.look == "solid" else 0.9
            order = 0 if series.model is None else 2
            corners = zip(*vertices(series, chart.x), strict=True)
            axes.plot(*corners, color=colour, linestyle=_LINES[series.look], linewidth=width, zorder=order)
        case "dots":
            axes.plot(x, y, **_marker(series.model, 2.6, series.look), linestyle="none", alpha=0.55, clip_on=False)
        case "marks":
            size = 4.2 * series.size
            axes.plot(x, y, **_marker(series.model, size, series.look), linestyle="none", clip_on=False)
            for a, b, text in zip(x, y, series.labels, strict=False):
                axes.annotate(text, (a, b), (size, 0), textcoords="offset points", fontsize=6, va="center")
        case "bars":
            for low, high, height in bars(series):
                axes.bar(low, height, high - low, align="edge", color=colour, alpha=0.85)
        case "across":
            axes.barh(y, x, 0.6, color=colour)
            for a, b, text in zip(x, y, series.labels, strict=True):
                axes.annotate(text, (a, b), (3, 0), textcoords="offset points", fontsize=6, va="center")


def _marker(model: int | None, size: float, look: str) -> dict[str, Any]:
    colour = COLOURS[(model or 0) % len(COLOURS)]
    look_of = {"markerfacecolor": "white", "markeredgewidth": 0.9} if look == "hollow" else {"markeredgewidth": 0}
    marker = _MARKERS[(model or 0) % len(_MARKERS)]
    return {"color": colour, "marker": marker, "markersize": size, "markeredgecolor": colour, **look_of}


def _legend_below(drawing: "Drawing", keys: Sequence[Key]) -> None:
    """Below the axes, where it covers nothing; the figure grows by its height."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties
    from matplotlib.lines import Line2D

    if not keys:
        return
    handles = []
    for key in keys:
        mark = {"color": "#333333"} if key.model is None else _marker(key.model, 4, "solid")
        line: Any = _LINES[key.look] if key.line else "none"
        handles.append(Line2D([], [], **mark, linestyle=line, linewidth=1.1, label=_drawable(key.name)))
    scale = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points() / _SIZE
    longest = max(len(key.name[:_LONGEST]) for key in keys)
    columns = max(1, min(len(keys), int(drawing.get_figwidth() * 16 / scale / (longest + 6))))
    drawing.set_figheight(drawing.get_figheight() + 0.14 * scale * math.ceil(len(keys) / columns) + 0.1)
    drawing.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.2, columnspacing=1.2)


def _drawable(text: str) -> str:
    """Without formulas and signs that the font lacks, and not too long."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont("DejaVu Sans")).get_charmap()
    plain = "".join(sign if sign.isprintable() and ord(sign) in known else "?" for sign in text)
    short = plain if len(plain) <= 2 * _LONGEST else f"{plain[: _LONGEST - 9]}…{plain[-8:]}"
    return short.replace("$", r"\$")
