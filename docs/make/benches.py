"""What `python -m bench attacks --json FILE` found, as tables for a page of prose."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.make.measured import written_by
from gradreg.config.fractions import radius_name
from gradreg.errors import DataError
from gradreg.norms import THREATS
from gradreg.reading import read_json
from gradreg.report.tables.cells import number, word
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table

Found = Mapping[str, Any]
_KINDS = ("distances l2", "distances linf", "radius", "equal", "targets")
_MET = {True: "met", False: "missed", None: "not measured"}


def read(path: Path) -> Found:
    """The file, if it is one of that command."""
    with written_by("attacks", path):
        found = read_json(path)
        return {key: found[key] for key in ("options", "machine", "peers", "rows", "radius_rows", "equal", "targets")}


def attacks_table(kind: Sequence[str], found: Found) -> Table:
    """One of `_KINDS`, by its words."""
    match kind:
        case ["distances", "l2" | "linf" as threat]:
            return _distances(found, threat)
        case ["radius"]:
            return _at_radius(found)
        case ["equal"]:
            return _equal(found)
        case ["targets"]:
            return _targets(found)
    raise DataError(f"A table of `python -m bench attacks` must be one of {', '.join(_KINDS)}; got {' '.join(kind)!r}.")


def _distances(found: Found, threat: str) -> Table:
    rows = [row for row in found["rows"] if row["threat"] == threat]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    known = {(row["network"], row["attack"]): row for row in rows}
    return Table(
        f"attacks-{threat}",
        f"The smallest distance, {THREATS[threat].symbol}",
        f"{THREATS[threat].symbol} distance over the image's best of all runs here (∞: not found), forwards and "
        f"backwards per image, and processor seconds for all images. {_origin(found)}",
        tuple(
            column
            for network in networks
            for column in (
                Column(f"{network}: median", "Median of the ratio over images.", "low"),
                Column("p90", "Nine images in ten do not exceed it.", "low"),
                Column("propagations", "Forwards and backwards of the network per image.", "low"),
                Column("s", "Processor time.", "low"),
            )
        ),
        tuple(
            Row(attack, tuple(cell for network in networks for cell in _ratio_cells(known.get((network, attack)))))
            for attack in dict.fromkeys(row["attack"] for row in rows)
        ),
        of="attack",
    )


def _at_radius(found: Found) -> Table:
    return Table(
        "attacks-radius",
        "Robust accuracy at one radius",
        f"Robust accuracy at one radius, n = {found['options']['images']} images that both networks get right; "
        "forwards and backwards are means over the images, seconds are processor time for all images.",
        (
            Column("attack", "With its own settings."),
            Column("robust", "Fraction of images that remain robust.", "low"),
            Column("propagations", "Forwards and backwards of the network per image.", "low"),
            Column("s", "Processor time.", "low"),
        ),
        tuple(
            Row(
                f"{row['network']}, {THREATS[row['threat']].symbol} {radius_name(row['eps'])}",
                (word(_named(row)), _percent(row["robust"]), _sum(row), number(row["cpu"])),
            )
            for row in found["radius_rows"]
        ),
        of="network and radius",
    )


def _equal(found: Found) -> Table:
    parts = (("distance", "distance"), ("propagations", "propagations"), ("cpu", "seconds"))
    return Table(
        "attacks-equal",
        "Ours over foolbox's",
        "Ours over foolbox's with the same numbers of steps at most; below 1 is better.",
        tuple(Column(heading, "Ours over foolbox's.", "low") for _, heading in parts),
        tuple(
            Row(f"{row['network']}: {row['attack']}", tuple(number(row[key], unit="×") for key, _ in parts))
            for row in found["equal"]
        ),
        of="network and attack",
    )


def _targets(found: Found) -> Table:
    return Table(
        "attacks-targets",
        "Targets",
        "Each target, what was measured, and whether that meets it.",
        (Column("found", "Measured."), Column("", "Whether that meets it.")),
        tuple(Row(row["promise"], (word(row["found"]), word(_MET[row["met"]]))) for row in found["targets"]),
        of="target",
    )


def _ratio_cells(row: Found | None) -> tuple[Cell, ...]:
    if row is None or row["success"] is None:
        # A contender that was not run; its note says why.
        return (word(row["note"] if row else "–"), NOTHING, NOTHING, NOTHING)
    return (_ratio(row["median"]), _ratio(row["p90"]), _sum(row), number(row["cpu"]))


def _ratio(value: float | None) -> Cell:
    """JSON has no infinity: null is an attack that failed on so many images."""
    return Cell("∞" if value is None else f"{value:.4f}", value)


def _sum(row: Found) -> Cell:
    if row["forwards"] is None:
        return NOTHING
    both = row["forwards"] + row["backwards"]
    return Cell(f"{both:,.0f}", both)


def _percent(value: float | None) -> Cell:
    return NOTHING if value is None else Cell(f"{100 * value:.1f} %", value)


def _named(row: Found) -> str:
    return f"{row['attack']} ({row['note']})" if row["note"] else str(row["attack"])


def _origin(found: Found) -> str:
    options, machine = found["options"], found["machine"]
    peers = ", ".join(f"{name} {version}" for name, version in found["peers"].items() if version)
    return (
        f"n = {options['images']} images of {options['data']}, seed {options['seed']}, "
        f"commit {machine['commit'] or '–'}; {machine['processor']}, {machine['threads']} thread(s), "
        f"torch {machine['torch']}; {peers or 'no peers'}."
    )
