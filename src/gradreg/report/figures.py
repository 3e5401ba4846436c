"""The report's figures as files for a paper: SVG, PNG and PDF, the same bytes for the same evaluations."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradreg.errors import ConfigError, DataError
from gradreg.evaluation.record import Evaluation
from gradreg.report import plots
from gradreg.report.compare import check_comparable, cost_ratio, with_distinct_names
from gradreg.report.numbers import STANDARD_RADII
from gradreg.storage import replacing

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


def draw(evaluations: Sequence[Evaluation], folder: Path, endings: Sequence[str] = tuple(_METADATA)) -> list[Path]:
    """Draw all that there is data for; the files written."""
    check_comparable(evaluations)
    evaluations = with_distinct_names(evaluations)
    written = []
    for name, make in _drawings(evaluations):
        written += draw_one(make, [folder / f"{name}.{ending}" for ending in endings])
    return written


def draw_one(make: "Callable[[], Figure]", files: Sequence[Path]) -> list[Path]:
    """Draw a figure in the reports' style and write it in the formats that the files' endings name."""
    for file in files:
        if file.suffix[1:] not in _METADATA:
            raise ConfigError(
                f"{file} is no figure: let its name end in {', '.join(f'.{each}' for each in _METADATA)}."
            )
    with _style():
        figure = make()
        # Laid out once, not again for every file.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return [_save(figure, file) for file in files]


def _drawings(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, "Callable[[], Figure]"]]:
    threats = [threat for threat in STANDARD_RADII if any(threat in e.threats for e in evaluations)]
    for threat in threats:
        yield f"figure-1-{threat}", partial(plots.error_against_distance, evaluations, threat)
    if threats:
        yield "frontier", partial(plots.trade_off, evaluations, threats)
        if any(cost_ratio(evaluation, evaluations) is not None for evaluation in evaluations):
            yield "cost", partial(plots.robustness_against_cost, evaluations, threats)
        yield "distances", partial(plots.distances, evaluations, threats)
    bounded = [t for t in threats if any(t in e.threats and e.threats[t].bounded for e in evaluations)]
    if bounded:
        yield "gap", partial(plots.bounds_against_distances, evaluations, bounded)


def _save(figure: "Figure", path: Path) -> Path:
    ending = path.suffix[1:]
    try:
        with replacing(path) as aside:
            figure.savefig(aside, format=ending, dpi=300, metadata=_METADATA[ending])
    except OSError as error:
        raise DataError(f"The figure {path} could not be written ({error}): choose another folder.") from error
    return path


@contextmanager
def _style() -> Iterator[None]:
    """On top of matplotlib's defaults, whatever the user's own settings are; they are in force again afterwards."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {key: value for key, value in mpl.rcParamsDefault.items() if key not in _KEPT}
    with mpl.rc_context(settings | dict(_STYLE)):
        yield


_KEPT = ("backend", "backend_fallback", "interactive", "toolbar")
