"""What `python -m bench band --json FILE` found, as tables for a page of prose."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.band import JudgedRow, LearnedRow
from docs.make.measured import written_by
from gradreg.attacks.band import Band
from gradreg.config.fractions import radius_name
from gradreg.errors import DataError
from gradreg.norms import THREATS
from gradreg.reading import read_json
from gradreg.report.tables.layout import Cell, Column, Row, Table

_KINDS = ("learned", "judged")


def band_table(kind: Sequence[str], path: Path) -> Table:
    """One of `_KINDS`."""
    with written_by("band", path):
        found = read_json(path)
        about = f"Seed {found['options']['seed']}, commit {found['machine']['commit']}; {found['machine']['processor']}"
        match kind:
            case ["learned"]:
                return _learned([LearnedRow(**each) for each in found["learned"]], bands_of(found), about)
            case ["judged"]:
                return _judged([JudgedRow(**each) for each in found["judged"]], about, found["autoattack"])
    raise DataError(f"A table of `python -m bench band` must be one of {', '.join(_KINDS)}; got {' '.join(kind)!r}.")


def bands_of(found: Mapping[str, Any]) -> dict[str, Band]:
    """The bands that were learned, by threat."""
    return {threat: Band(**band) for threat, band in found["bands"].items()}


def _learned(rows: list[LearnedRow], bands: Mapping[str, Band], about: str) -> Table:
    words = "; ".join(
        f"{THREATS[threat].symbol}: {band.factor:g} over {band.images:,} images, exceeded by at most "
        f"{100 * band.limit:.2f} % of images like them (95 %)"
        for threat, band in bands.items()
    )
    return Table(
        "band-learned",
        "What the band was learned on",
        f"Distance after the first attacks over the best known, image by image. Learned: {words}. {about}.",
        (
            Column("images", "Classified correctly, and not trained on."),
            Column("clean", "Accuracy of the network.", "high"),
            Column("median", "Of the ratio.", "low"),
            Column("p99", "Of the ratio.", "low"),
            Column("largest", "Of the ratio.", "low"),
        ),
        tuple(
            Row(
                f"{row.data}: {row.network}, {THREATS[row.threat].symbol}",
                (
                    Cell(str(row.images), row.images),
                    Cell(f"{100 * row.accuracy:.1f} %", row.accuracy),
                    *(Cell(f"{value:.4f}×", value) for value in (row.median, row.p99, row.largest)),
                ),
            )
            for row in rows
        ),
        of="network",
    )


def _judged(rows: list[JudgedRow], about: str, version: str | None) -> Table:
    return Table(
        "band-judged",
        "Verdicts beside AutoAttack",
        "Images that remain robust, those of ours that AutoAttack breaks, and propagations, on other networks and "
        f"images than the band was learned on. {about}; autoattack {version}.",
        (
            Column("n", "Images, classified correctly."),
            Column("robust", "Images that remain robust.", "low"),
            Column("AutoAttack", "Images that remain robust against AutoAttack-standard.", "low"),
            Column("left early", "Images that were not given the whole suite.", "high"),
            Column("missed", "Images that we leave as robust and AutoAttack breaks.", "low"),
            Column("propagations", "Forwards and backwards per image.", "low"),
            Column("over thorough's", "With `thorough=True` every image gets the whole suite.", "low"),
            Column("over AutoAttack's", "Forwards and backwards over those of AutoAttack.", "low"),
        ),
        tuple(
            Row(f"{row.network}, {THREATS[row.threat].symbol} {radius_name(row.eps)}", _judged_cells(row))
            for row in rows
        ),
        of="network and radius",
    )


def _judged_cells(row: JudgedRow) -> tuple[Cell, ...]:
    counts = (row.images, row.robust, row.robust_reference, row.left_early, row.missed)
    mean = row.propagations / row.images
    shares = (row.propagations / row.propagations_whole, row.propagations / row.propagations_reference)
    return (
        *(Cell(str(count), count) for count in counts),
        Cell(f"{mean:,.0f}", mean),
        *(Cell(f"{share:.3f}×", share) for share in shares),
    )
