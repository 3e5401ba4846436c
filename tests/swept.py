"""A sweep of made-up training runs, as directories that `gradreg train` would leave."""

from pathlib import Path
from typing import Any

from gradreg.report.tables.runs import Run, read
from gradreg.runs.directory import RunDirectory

GRADIENT = {"name": "gradient", "threat": "linf", "eps": 8 / 255, "h": 7 / 255, "lazy": 1}


def wrote(
    folder: Path, clean: float = 0.6, rate: float = 100.0, trained: dict[str, str] | None = None, **settings: Any
) -> Path:
    """A run of three epochs, the second of them the best, like no other but in those settings.

    `trained` says by which code and where, as runs do since they write it down.
    """
    config = {"seed": 0, "workers": 2, "data": "cifar10", "model": {"name": "compact", "activation": "gelu"}}
    run = RunDirectory(folder)
    run.start(config | {"objective": GRADIENT} | settings)
    for epoch, (share, best) in enumerate([(0.3, True), (clean, True), (0.9, False)], start=1):
        figures = {"clean": share, "probe": share / 2, "single_step": share / 2, "grad_norm": 10.0, "hours": 0.1}
        counts = {"epoch": epoch, "held_out": 1000, "probed": 500, "images_per_second": rate * epoch, "best": best}
        run.add_metrics(counts | figures | (trained or {}))
    return folder


def swept(folder: Path) -> list[Path]:
    """Runs that differ from the first in one setting each, and one without a defence."""
    return [
        wrote(folder / "middle"),
        wrote(folder / "h1", clean=0.7, objective=GRADIENT | {"h": 1 / 255}),
        wrote(folder / "h12", clean=0.5, objective=GRADIENT | {"h": 12 / 255}, workers=4),
        wrote(folder / "lazy", rate=160.0, objective=GRADIENT | {"lazy": 4}),
        wrote(folder / "relu", model={"name": "compact", "activation": "relu"}),
        wrote(folder / "plain", clean=0.8, rate=240.0, objective={"name": "undefended"}, clip_norm=1.0),
    ]


def runs_of(folders: list[Path]) -> list[Run]:
    return [read(folder) for folder in folders]
