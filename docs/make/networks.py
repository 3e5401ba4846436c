"""The networks that the package carries, side by side."""

from collections.abc import Sequence
from pathlib import Path

import gradreg
from gradreg.norms import THREATS
from gradreg.reading import read_json
from gradreg.report.tables.cells import count, word
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table
from gradreg.runs.directory import RunDirectory
from gradreg.runs.networks import ENTRIES, WEIGHTS
from gradreg.runs.subject import parameters

_CAPTION = (
    "Clean accuracy on the whole test set; robust accuracy at the radius against gradreg's attacks (`standard`) and, "
    "where it was run, AutoAttack, on as many test images as the card says. Below the epochs of training its hours, on "
    "the machine that the card names."
)


def networks_table(places: Sequence[Path]) -> Table:
    """A row per network and threat that it was evaluated against."""
    rows = [Row(place.name, cells) for place in places for cells in _rows(place)]
    return Table(
        "networks",
        "Trained networks",
        _CAPTION,
        (
            Column("data", "What it was trained on."),
            Column("architecture", "As `gradreg.build` knows it."),
            Column("parameters", "How many."),
            Column("size", "Of the file."),
            Column("epochs", "Of training; below them its hours."),
            Column("attack", "Norm and radius."),
            Column("clean", "Accuracy.", "high"),
            Column("robust", "Accuracy under attack.", "high"),
            Column("AutoAttack", "Accuracy under it.", "high"),
        ),
        tuple(rows),
        of="network",
    )


def _rows(place: Path) -> list[tuple[Cell, ...]]:
    run, entries = RunDirectory(place), read_json(place / ENTRIES)
    last, size = run.metrics()[-1], (place / WEIGHTS).stat().st_size
    about = (
        word(str(run.config()["data"])),
        word(str(run.config()["model"]["name"])),
        count(parameters(gradreg.load(place))),
        Cell(f"{size / 1e6:.1f} MB", size),
        Cell(f"{last['epoch']}", last["epoch"], f"{last['hours']:.2f} h"),
    )
    return [
        (*about, word(f"{THREATS[threat].symbol} {entry['eps']}"), *map(_accuracy, _accuracies(entry)))
        for threat, entry in entries.items()
    ]


def _accuracies(entry: dict[str, str | None]) -> tuple[str | None, ...]:
    return entry["clean_acc"], entry["reported"], entry["autoattack_acc"]


def _accuracy(text: str | None) -> Cell:
    return NOTHING if text is None else Cell(f"{text} %", float(text))
