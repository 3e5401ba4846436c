"""What `python -m bench precision --json FILE` found, as a table for a page of prose."""

from pathlib import Path

from bench.precision import PrecisionRow
from docs.make.measured import written_by
from gradreg.norms import THREATS
from gradreg.reading import read_json
from gradreg.report.tables.layout import Cell, Column, Row, Table


def precision_table(path: Path) -> Table:
    """One row per suite and norm."""
    with written_by("precision", path):
        found = read_json(path)
        rows = [PrecisionRow(**each) for each in found["rows"]]
        options, machine = found["options"], found["machine"]
        units = "with" if machine["bf16"] else "without"
        where = f"{machine['processor']} {units} bfloat16 units, 1 thread, torch {machine['torch']}"
        about = f"n = {options['images']} images of {options['data']}, network {options['network']}, seed 0"
        commit = machine["commit"]
    return Table(
        "precision",
        "A search in bfloat16",
        f"A search in bfloat16 over one in single precision: processor time, distances image by image. {about}, commit "
        f"{commit}; {where}.",
        (
            Column("s, single", "Processor time as the model computes.", "low"),
            Column("s, bf16", "Processor time of the search in bfloat16.", "low"),
            Column("propagations, single", "Forwards and backwards per image.", "low"),
            Column("propagations, bf16", "The same, with those that asked about successes again.", "low"),
            Column("distance, median", "Of the ratio of distances.", "low"),
            Column("p90", "Nine images in ten do not exceed it.", "low"),
            Column("more than 1 % farther", "Images.", "low"),
            Column("more than 1 % nearer", "Images.", "high"),
            Column("not adversarial", "Images returned that the model gets right, asked alone.", "low"),
        ),
        tuple(Row(f"{row.attacks}, {THREATS[row.threat].symbol}", _cells(row)) for row in rows),
        of="suite",
    )


def _cells(row: PrecisionRow) -> tuple[Cell, ...]:
    cells = [Cell(f"{value:.1f}", value) for value in row.seconds]
    cells += [Cell(f"{value:.0f}", value) for value in row.propagations]
    cells += [Cell(f"{value:.4f}×", value) for value in (row.median, row.p90)]
    return (*cells, *(Cell(str(count), count) for count in (row.farther, row.nearer, row.unverified)))
