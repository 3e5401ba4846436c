"""The report's figures as files for a paper: SVG, PNG and PDF, the same bytes for the same evaluations."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradreg.display.plot import plot
from gradreg.errors import ConfigError
from gradreg.extras import need
from gradreg.locks import lock
from gradreg.report.charts.selection import figures
from gradreg.report.comparison import Comparison
from gradreg.writing import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without dates and versions in them, files differ only if the figures do.
_METADATA: Mapping[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.labelsize": 7,
    "axes.titlesize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,
    "svg.hashsalt": "gradreg",
}


def draw(comparison: Comparison, folder: Path, endings: Sequence[str] = tuple(_METADATA)) -> list[Path]:
    """Draw all figures that there is data for; the files written."""
    written = []
    with lock(folder):
        for figure in figures(comparison):
            written += draw_one(partial(plot, figure), [folder / f"{figure.name}.{ending}" for ending in endings])
    return written


def draw_one(make: "Callable[[], Figure]", files: Sequence[Path]) -> list[Path]:
    """Draw a figure in the reports' style and write it in the formats that the files' endings name."""
    for file in files:
        if file.suffix[1:] not in _METADATA:
            raise ConfigError(
                f"The name of a figure must end in {', '.join(f'.{each}' for each in _METADATA)}; got {file}."
            )
    with _style():
        figure = make()
        # Laid out once, not again for every file.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return [_save(figure, file) for file in files]


def _save(figure: "Figure", path: Path) -> Path:
    ending = path.suffix[1:]
    with replacing(path) as aside:
        figure.savefig(aside, format=ending, dpi=300, metadata=_METADATA[ending])
    return path


@contextmanager
def _style() -> Iterator[None]:
    """On top of matplotlib's defaults, whatever the user's own settings are; they are in force again afterwards."""
    need("matplotlib", "A figure")
    import matplotlib as mpl

    settings: dict[Any, Any] = {key: value for key, value in mpl.rcParamsDefault.items() if key not in _KEPT}
    with mpl.rc_context(settings | dict(_STYLE)):
        yield


_KEPT = ("backend", "backend_fallback", "interactive", "toolbar")
