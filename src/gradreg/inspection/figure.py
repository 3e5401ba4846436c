"""How an inspection is drawn, with matplotlib's objects and none of its global state."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from gradreg.checks.calls import validated
from gradreg.display.pictures import magnification, show, show_difference
from gradreg.errors import ConfigError
from gradreg.extras import need
from gradreg.inspection.record import Inspection, Nearest
from gradreg.locks import lock_output
from gradreg.writing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches.
_WIDTH, _ROW, _HEADER, _TEXT_LINE = 7.6, 1.62, 0.46, 0.185
_EMPIRICAL, _HEURISTIC, _PROBABILISTIC = "#333333", "#b04a00", "#00618f"


@validated
def draw(inspection: Inspection, path: str | Path) -> None:
    """The inspection as a PNG file: a row for each attack under what is known of the image."""
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ConfigError(f"The figure must be a .png file; got {path}.")
    need("matplotlib", "The figure")
    with lock_output(path), replacing(path) as aside:
        figure(inspection).savefig(aside, format="png", dpi=150)


def figure(inspection: Inspection) -> "Figure":
    """A header with the three statements, then a row for each attack: clean, adversarial, difference and figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = _header(inspection)
    header = _HEADER + _TEXT_LINE * len(lines)
    height = header + _ROW * len(inspection.found)
    drawn = Figure(figsize=(_WIDTH, height), facecolor="white")
    FigureCanvasAgg(drawn)
    for number, (text, colour, weight) in enumerate(lines):
        y = 1 - (0.16 + _TEXT_LINE * number) / height
        drawn.text(0.025, y, text, color=colour, fontsize=8.5, fontweight=weight, va="top", parse_math=False)
    grid = drawn.add_gridspec(
        len(inspection.found),
        4,
        left=0.025,
        right=0.985,
        top=1 - header / height,
        bottom=0.1 / height,
        width_ratios=(1, 1, 1, 1.55),
        hspace=0.1,
        wspace=0.06,
    )
    for row, one in enumerate(inspection.ranked):
        panels = [drawn.add_subplot(grid[row, column]) for column in range(4)]
        _draw_row(panels, inspection, one)
        if row == 0:
            titles = ("clean", "adversarial", "difference, magnified")
            for axes, title in zip(panels, titles, strict=False):
                axes.set_title(title, fontsize=8.5, pad=4)
    return drawn


def _header(found: Inspection) -> list[tuple[str, str, str]]:
    from textwrap import wrap

    names = found.classes
    agreed = "and classified so" if found.label == found.prediction else f"but classified {names[found.prediction]}"
    slope = f"gradient norm {found.grad_norm:.3g}"
    margin = f"{found.margin:.3f}".replace("-", "−")
    measured = "probability margin" if found.topk == 1 else f"top-{found.topk} probability margin"
    about = f"Labelled {names[found.label]} {agreed}; {measured} {margin}, {slope}."
    colours = (_EMPIRICAL, _HEURISTIC, _PROBABILISTIC)
    lines = [(about, "black", "bold")]
    for text, colour in zip(found.statements(), colours, strict=True):
        lines += [(part, colour, "normal") for part in wrap(text, 118, subsequent_indent="    ")]
    return lines


def _draw_row(panels: "list[Axes]", inspection: Inspection, one: Nearest) -> None:
    clean, words = panels[0], panels[3]
    show(clean, inspection.image)
    broken = 0 < one.distance < math.inf
    name = inspection.classes[one.prediction]
    if broken:
        factor = magnification(one.adversarial - inspection.image)
        show(panels[1], one.adversarial)
        show_difference(panels[2], factor * (one.adversarial - inspection.image))
        panels[2].text(
            0.03, 0.04, f"×{factor:g}", transform=panels[2].transAxes, fontsize=8, color="black",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
        )  # fmt: skip
        said = f"{inspection.symbol} {one.distance:.4g}\ntaken for {name}"
    else:
        said = f"taken for {name}\nas it is" if one.distance == 0 else "no adversarial image\nfound"
        for axes in panels[1:3]:
            axes.set_axis_off()
    words.set_axis_off()
    words.text(0.04, 0.94, one.attack, fontsize=10, fontweight="bold", va="top", parse_math=False)
    words.text(0.04, 0.74, said, fontsize=9, va="top", linespacing=1.35, parse_math=False)
    cost = f"{one.forwards:,} forwards, {one.backwards:,} backwards"
    words.text(0.04, 0.32, cost, fontsize=7.5, va="top", color="#666666")
